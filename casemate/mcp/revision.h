#pragma once

// The published revisions of MCP that are served, and what tells them apart. Wire spellings stand
// in one table (revision.cc), each difference in one field.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace casemate::mcp {

enum class Revision : std::uint8_t {
  v2024_11_05,
  v2025_03_26,
  v2025_06_18,
  v2025_11_25,
  v2026_07_28,
};

// Oldest first.
inline constexpr std::array kRevisions = {Revision::v2024_11_05, Revision::v2025_03_26,
                                          Revision::v2025_06_18, Revision::v2025_11_25,
                                          Revision::v2026_07_28};

// What an `initialize` with a revision that is not served is answered with.
inline constexpr Revision kNewestHandshake = Revision::v2025_11_25;

// The only revision without a handshake.
inline constexpr Revision kStateless = Revision::v2026_07_28;

// The wire spelling, "2025-11-25"; a string literal.
std::string_view to_string(Revision revision);
// Exactly that spelling, or nothing.
std::optional<Revision> find_revision(std::string_view text);

// What may be sent under a revision, and what may come.
struct RevisionFeatures {
  // Several messages in one JSON array.
  bool batches = false;
  // `annotations` of a tool.
  bool annotations = false;
  // `message` beside `progress`.
  bool progress_message = false;
  // `structuredContent` of a result, links to resources in it, `_meta` of a tool.
  bool structured = false;
  // The client's user can be asked.
  bool elicitation = false;
  // An error about a message whose id could not be read has no id at all; before, JSON-RPC's null.
  bool error_without_id = false;
  // A resource that is not there has a code of its own (-32002).
  bool resource_not_found = false;
  // `resultType`, `ttlMs`, `cacheScope`; no handshake, no ping, no `logging/setLevel`.
  bool stateless = false;
};

const RevisionFeatures& features_of(Revision revision);

}  // namespace casemate::mcp
