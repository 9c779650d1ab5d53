#include "casemate/transfer/artifact_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "casemate/base/utf8.h"

namespace casemate {
namespace {

constexpr std::string_view kAccepted =
    "a relative name such as report.csv or plots/sales.png, of at most 255 bytes of UTF-8";

// Segments between slashes; "a/" has two, the second empty.
std::vector<std::string_view> segments_of(std::string_view name) {
  std::vector<std::string_view> segments;
  while (true) {
    const std::size_t slash = name.find('/');
    segments.push_back(name.substr(0, slash));
    if (slash == std::string_view::npos) {
      return segments;
    }
    name.remove_prefix(slash + 1);
  }
}

// The forbidden control characters of `name`, each once. Looks at bytes, because the rule stands
// before the one on UTF-8: a well-formed sequence is found also where another part is broken.
std::set<char32_t> controls_in(std::string_view name) {
  std::set<char32_t> found;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto byte = [&](std::size_t offset) -> unsigned {
      return i + offset < name.size() ? static_cast<unsigned char>(name[i + offset]) : 0U;
    };
    const unsigned first = byte(0);
    if (first < 0x20 || first == 0x7F) {
      found.insert(first);
    } else if (first == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F) {
      found.insert(byte(1));  // C1: U+0080..U+009F
    } else if (first == 0xE2 && byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) {
      found.insert(0x2000 + (byte(2) & 0x3F));  // U+202A..U+202E
    } else if (first == 0xE2 && byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9) {
      found.insert(0x2040 + (byte(2) & 0x3F));  // U+2066..U+2069
    }
  }
  return found;
}

std::string code_points(const std::set<char32_t>& characters) {
  std::string text;
  for (const char32_t character : characters) {
    text +=
        fmt::format("{}U+{:04X}", text.empty() ? "" : ", ", static_cast<std::uint32_t>(character));
  }
  return text;
}

// Whether a refusal may repeat the name to a model: not where the name tries to lead elsewhere,
// because such a text would carry a path of the program's choice onwards as the host's words.
bool may_repeat(ArtifactNameRule rule) {
  return rule != ArtifactNameRule::no_backslash && rule != ArtifactNameRule::relative &&
         rule != ArtifactNameRule::no_parent_segment;
}

ArtifactNameFault fault(ArtifactNameRule rule, std::string_view name, std::string_view reason) {
  const auto text = [&](bool with_name) {
    const std::string subject = with_name && !name.empty()
                                    ? fmt::format("file name \"{}\"", escape_for_display(name))
                                    : std::string("a file name");
    return fmt::format("{} {}; accepted is {}", subject, reason, kAccepted);
  };
  return {rule, text(may_repeat(rule)), text(true)};
}

}  // namespace

std::optional<ArtifactNameFault> artifact_name_fault(std::string_view name) {
  if (name.empty()) {
    return fault(ArtifactNameRule::not_empty, name, "is empty");
  }
  if (name.find('\\') != std::string_view::npos) {
    return fault(ArtifactNameRule::no_backslash, name,
                 "holds a backslash, and only / separates directories");
  }
  if (name.front() == '/') {
    return fault(ArtifactNameRule::relative, name, "starts with /, and names are relative");
  }
  const std::vector<std::string_view> segments = segments_of(name);
  if (std::ranges::find(segments, "..") != segments.end()) {
    return fault(ArtifactNameRule::no_parent_segment, name, "has a segment that is \"..\"");
  }
  if (std::ranges::any_of(segments, [](auto part) { return part.empty() || part == "."; })) {
    return fault(ArtifactNameRule::no_empty_segment, name, "has a segment that is empty or \".\"");
  }
  if (const std::set<char32_t> controls = controls_in(name); !controls.empty()) {
    return fault(ArtifactNameRule::no_control, name,
                 fmt::format("holds control characters ({})", code_points(controls)));
  }
  if (!is_valid_utf8(name)) {
    return fault(ArtifactNameRule::utf8, name, "is not valid UTF-8");
  }
  if (name.size() > kMaxArtifactNameBytes) {
    return fault(ArtifactNameRule::at_most_255_bytes, name,
                 fmt::format("is {} bytes long", name.size()));
  }
  return std::nullopt;
}

ArtifactNameRefused::ArtifactNameRefused(const ArtifactNameFault& fault)
    : SandboxArtifactNameInvalid(fault.message, "use another name"),
      rule_(fault.rule),
      operator_message_(fault.operator_message) {}

void validate_artifact_name(std::string_view name) {
  if (const auto found = artifact_name_fault(name)) {
    throw ArtifactNameRefused(*found);
  }
}

std::string collision_key(std::string_view name) {
  // U+0130 is the one letter whose lower case is two code points in the reference (Unicode's
  // SpecialCasing, without its language-dependent rows); simple mapping would make it "i".
  constexpr std::string_view kDottedCapitalI = "\u0130";
  std::string text = normalise_nfc(name);
  for (std::size_t at = text.find(kDottedCapitalI); at != std::string::npos;
       at = text.find(kDottedCapitalI, at)) {
    text.replace(at, kDottedCapitalI.size(), "i\u0307");
  }
  return lower_case(text);
}

void NameSet::add(std::string_view name) {
  std::string key = comparison_ == NameComparison::exact ? std::string(name) : collision_key(name);
  const auto shown = [](std::string_view text) { return escape_for_display(text); };

  if (const auto same = names_.find(key); same != names_.end()) {
    if (same->second == name) {
      throw SandboxArtifactNameCollision(
          fmt::format("file name \"{}\" is given twice; each name may be used once", shown(name)),
          "give each file a name of its own");
    }
    throw SandboxArtifactNameCollision(
        fmt::format("file names \"{}\" and \"{}\" differ only in letter case or in Unicode "
                    "composition, so that they are one file once saved",
                    shown(same->second), shown(name)),
        "choose names that differ in more than that");
  }
  const auto nested = [&](std::string_view outer, std::string_view inner) {
    return SandboxArtifactNameCollision(
        fmt::format("file name \"{}\" is also a directory of \"{}\", and one path cannot be both",
                    shown(outer), shown(inner)),
        "choose a name outside the other file's");
  };
  for (std::size_t slash = key.find('/'); slash != std::string::npos;
       slash = key.find('/', slash + 1)) {
    const auto outer = names_.find(std::string_view(key).substr(0, slash));
    if (outer != names_.end()) {
      throw nested(outer->second, name);
    }
  }
  const std::string below = key + '/';
  if (const auto inner = names_.lower_bound(below);
      inner != names_.end() && inner->first.starts_with(below)) {
    throw nested(name, inner->second);
  }
  names_.emplace(std::move(key), name);
}

void refuse_name_clashes(std::span<const std::string> names, NameComparison comparison) {
  NameSet set(comparison);
  for (const std::string& name : names) {
    set.add(name);
  }
}

namespace {

bool is_reserved_stem(std::string_view stem) {
  std::string upper(stem);
  std::ranges::transform(upper, upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  constexpr std::array<std::string_view, 4> kDevices = {"CON", "PRN", "AUX", "NUL"};
  if (std::ranges::find(kDevices, upper) != kDevices.end()) {
    return true;
  }
  if (!upper.starts_with("COM") && !upper.starts_with("LPT")) {
    return false;
  }
  const std::string_view digit = std::string_view(upper).substr(3);
  constexpr std::array<std::string_view, 3> kSuperscripts = {"\u00b9", "\u00b2", "\u00b3"};
  return (digit.size() == 1 && digit[0] >= '1' && digit[0] <= '9') ||
         std::ranges::find(kSuperscripts, digit) != kSuperscripts.end();
}

std::string portable_segment(std::string_view segment) {
  std::string text(segment);
  std::ranges::replace_if(
      text,
      [](char c) {
        return static_cast<unsigned char>(c) < 0x20 ||
               std::string_view("<>:\"|?*").find(c) != std::string_view::npos;
      },
      '_');
  text.erase(text.find_last_not_of(". ") + 1);
  const std::string_view stem = std::string_view(text).substr(0, text.find('.'));
  if (is_reserved_stem(stem)) {
    text.insert(stem.size(), 1, '_');
  }
  return text.empty() ? "_" : text;
}

}  // namespace

std::string portable_name(std::string_view name) {
  std::string result;
  for (const std::string_view segment : segments_of(name)) {
    if (!result.empty()) {
      result += '/';
    }
    result += portable_segment(segment);
  }
  return result;
}

}  // namespace casemate
