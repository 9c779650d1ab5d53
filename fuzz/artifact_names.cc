// Names of files that cross the boundary, against the rules written down a second time, on code
// points instead of bytes.

#include <string>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/transfer/artifact_name.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

// The rules as the contract has them.
bool is_acceptable(std::string_view name) {
  if (name.empty() || name.size() > 255 || !is_valid_utf8(name)) return false;
  for (const char32_t c : decode_utf8(name)) {
    if (c == U'\\' || is_control(c)) return false;
  }
  Input segments(name);
  while (true) {
    const bool last = segments.rest().find('/') == std::string_view::npos;
    const std::string_view segment = segments.until('/');
    if (segment.empty() || segment == "." || segment == "..") return false;
    if (last) return true;
  }
}

bool clash(std::string_view first, std::string_view second, NameComparison comparison) {
  NameSet set(comparison);
  set.add(first);
  try {
    set.add(second);
  } catch (const SandboxArtifactNameCollision&) {
    return true;
  }
  return false;
}

void check_name(std::string_view name) {
  const auto fault = artifact_name_fault(name);
  require(fault.has_value() != is_acceptable(name), "the rules are those of the contract");
  if (fault) {
    require(is_valid_utf8(fault->message) && is_valid_utf8(fault->operator_message),
            "a refusal is text");
    require(fault->message.size() < 2048 && fault->operator_message.size() < 2048,
            "a refusal is bounded, whatever it refuses");
    const bool leads_elsewhere = fault->rule == ArtifactNameRule::no_backslash ||
                                 fault->rule == ArtifactNameRule::relative ||
                                 fault->rule == ArtifactNameRule::no_parent_segment;
    require(!leads_elsewhere || name.size() < 24 || fault->message.find(name) == std::string::npos,
            "a name that leads elsewhere is not repeated to a model");
    return;
  }
  require(is_valid_utf8(collision_key(name)), "a collision key is text");
  require(clash(name, name, NameComparison::exact), "a name clashes with itself");
  const std::string portable = portable_name(name);
  require(portable_name(portable) == portable, "a portable name stays as it is");
  const auto portable_fault = artifact_name_fault(portable);
  require(!portable_fault || portable_fault->rule == ArtifactNameRule::at_most_255_bytes,
          "a portable name is a name");
}

}  // namespace

void fuzz_artifact_names(std::string_view bytes) {
  Input input(bytes);
  std::vector<std::string_view> valid;
  for (int count = 0; count < 4 && !input.empty(); ++count) {
    const std::string_view name = input.until('\n');
    check_name(name);
    if (is_acceptable(name)) valid.push_back(name);
  }
  for (const std::string_view first : valid) {
    for (const std::string_view second : valid) {
      const bool exact = clash(first, second, NameComparison::exact);
      const bool landing = clash(first, second, NameComparison::collision_key);
      require(!exact || landing, "what clashes by its bytes clashes where it lands");
      require(exact == clash(second, first, NameComparison::exact) &&
                  landing == clash(second, first, NameComparison::collision_key),
              "the order of names does not decide whether they clash");
    }
  }
}

}  // namespace casemate::fuzz
