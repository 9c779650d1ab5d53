#pragma once

// The spelling of files that cross the boundary: what programs are asked for, what lands, what is
// shared. Pure functions; no rule here depends on a destination or on the process's locale.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "casemate/core/errors.h"

namespace casemate {

// A name is at most this many bytes of UTF-8, directories included: what Linux file systems take
// for one component (NAME_MAX), so that any destination can hold it. A prefix that Casemate puts
// before a name does not count.
inline constexpr std::size_t kMaxArtifactNameBytes = 255;

// The rules, in the order in which they are tried.
enum class ArtifactNameRule : std::uint8_t {
  not_empty,
  no_backslash,
  relative,           // does not start with "/"
  no_parent_segment,  // no segment is ".."
  no_empty_segment,   // no segment is empty or "."
  no_control,         // C0, DEL, C1, and the bidirectional U+202A..U+202E and U+2066..U+2069
  utf8,               // well-formed
  at_most_255_bytes,
};

struct ArtifactNameFault {
  ArtifactNameRule rule = ArtifactNameRule::not_empty;
  // Names the rule. May go to a model: the name is in it only where it cannot lead anywhere (never
  // for a backslash, an absolute name or a parent segment).
  std::string message;
  // The same for the operator: always with the name, escaped for one line of a terminal.
  std::string operator_message;
};

// The first rule that `name` breaks, or nothing. Allowed, because nothing here is a shell, a glob
// or Windows: "~/x", "a:b", "NUL.txt", "*", "..a", only spaces. Zero-width characters are allowed
// and have to be escaped where a name is shown (`escape_for_display`).
std::optional<ArtifactNameFault> artifact_name_fault(std::string_view name);

// What `validate_artifact_name` throws: the refusal, and the text that only the operator may see.
class ArtifactNameRefused : public SandboxArtifactNameInvalid {
 public:
  explicit ArtifactNameRefused(const ArtifactNameFault& fault);
  ArtifactNameRule rule() const noexcept { return rule_; }
  const std::string& operator_message() const noexcept { return operator_message_; }

 private:
  ArtifactNameRule rule_;
  std::string operator_message_;
};

// Throws `ArtifactNameRefused` (a `SandboxArtifactNameInvalid`) for the first rule broken.
void validate_artifact_name(std::string_view name);

// Two names with equal keys are one file on a destination that ignores letter case or Unicode
// composition: lower case of the NFC form. Lower case, not case folding: "ß" and "ss" differ. The
// name must be valid.
std::string collision_key(std::string_view name);

// How names of one batch are held against each other.
enum class NameComparison : std::uint8_t {
  exact,          // by their bytes: for files that go to a guest
  collision_key,  // also by letter case and composition: for files that land anywhere
};

// Collects the names of a batch and refuses the first that cannot stand beside an earlier one.
// A value, not thread-safe.
class NameSet {
 public:
  explicit NameSet(NameComparison comparison) : comparison_(comparison) {}

  // Throws `SandboxArtifactNameCollision`, in different words, when `name` is identical to an
  // earlier name, when the two differ only in letter case or composition, and when one would have
  // to be a directory that holds the other ("a" and "a/b"). The name must be valid; it is added
  // only when nothing was thrown.
  void add(std::string_view name);

 private:
  NameComparison comparison_;
  std::map<std::string, std::string, std::less<>> names_;  // key -> the name as given
};

// `add` for each, in order. Names must be valid.
void refuse_name_clashes(std::span<const std::string> names, NameComparison comparison);

// A spelling of `name` that Windows can store too; opt-in, nothing calls it by itself. In each
// segment the characters <>:"|?* and C0 controls become "_", trailing dots and spaces go, a
// reserved device stem (CON, PRN, AUX, NUL, COM1..9, LPT1..9, also with superscript digits) gets a
// "_" appended, and what is empty then is "_". Two names may become one: check for clashes after.
std::string portable_name(std::string_view name);

}  // namespace casemate
