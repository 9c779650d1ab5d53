#include "casemate/mcp/revision.h"

#include <cstddef>

namespace casemate::mcp {
namespace {

struct Row {
  std::string_view spelling;
  RevisionFeatures features;
};

// In the order of the enumerators.
constexpr std::array<Row, kRevisions.size()> kRows = {{
    {"2024-11-05", {.batches = true, .resource_not_found = true}},
    {"2025-03-26",
     {.batches = true, .annotations = true, .progress_message = true, .resource_not_found = true}},
    {"2025-06-18",
     {.annotations = true,
      .progress_message = true,
      .structured = true,
      .elicitation = true,
      .resource_not_found = true}},
    {"2025-11-25",
     {.annotations = true,
      .progress_message = true,
      .structured = true,
      .elicitation = true,
      .error_without_id = true,
      .resource_not_found = true}},
    {"2026-07-28",
     {.annotations = true,
      .progress_message = true,
      .structured = true,
      .elicitation = true,
      .error_without_id = true,
      .stateless = true}},
}};

const Row& row_of(Revision revision) { return kRows[static_cast<std::size_t>(revision)]; }

}  // namespace

std::string_view to_string(Revision revision) { return row_of(revision).spelling; }

std::optional<Revision> find_revision(std::string_view text) {
  for (const Revision revision : kRevisions) {
    if (to_string(revision) == text) return revision;
  }
  return std::nullopt;
}

const RevisionFeatures& features_of(Revision revision) { return row_of(revision).features; }

}  // namespace casemate::mcp
