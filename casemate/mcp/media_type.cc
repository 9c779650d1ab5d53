#include "casemate/mcp/media_type.h"

#include <algorithm>
#include <array>

#include "casemate/base/utf8.h"

namespace casemate::mcp {
namespace {

struct Row {
  std::string_view extension;
  std::string_view type;
};

// Types as IANA registers them (iana.org/assignments/media-types). HTML and SVG, which a client
// might run, are named like the others: what it does with a type is the client's to decide.
constexpr auto kTable = std::to_array<Row>({
    {"csv", "text/csv"},
    {"gif", "image/gif"},
    {"htm", "text/html"},
    {"html", "text/html"},
    {"jpeg", "image/jpeg"},
    {"jpg", "image/jpeg"},
    {"json", "application/json"},
    {"md", "text/markdown"},
    {"pdf", "application/pdf"},
    {"png", "image/png"},
    {"svg", "image/svg+xml"},
    {"tsv", "text/tab-separated-values"},
    {"txt", "text/plain"},
    {"wav", "audio/wav"},
    {"webp", "image/webp"},
    {"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
    {"xml", "application/xml"},
    {"zip", "application/zip"},
});

}  // namespace

std::string_view media_type_of(std::string_view name) {
  const auto slash = name.rfind('/');
  if (slash != name.npos) name.remove_prefix(slash + 1);
  const auto dot = name.rfind('.');
  // ".csv" is a hidden file without an extension.
  if (dot == name.npos || dot == 0) return {};
  std::string extension(name.substr(dot + 1));
  if (!is_valid_utf8(extension)) return {};
  extension = lower_case(extension);
  const auto found = std::ranges::find(kTable, std::string_view(extension), &Row::extension);
  return found == kTable.end() ? std::string_view{} : found->type;
}

bool is_text_type(std::string_view media_type) {
  return media_type.starts_with("text/") || media_type == "application/json" ||
         media_type == "application/xml" || media_type == "image/svg+xml";
}

}  // namespace casemate::mcp
