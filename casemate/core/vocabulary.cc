#include "casemate/core/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate {
namespace {

template <typename Enum>
struct Spelling {
  Enum value;
  std::string_view text;
};

// One table an enumeration, in the order of its values: the only place where spellings stand.
constexpr std::array kIsolations{
    Spelling{Isolation::process, "process"},
    Spelling{Isolation::runtime, "runtime"},
    Spelling{Isolation::os_process, "os_process"},
    Spelling{Isolation::container, "container"},
    Spelling{Isolation::hardened_container, "hardened_container"},
    Spelling{Isolation::microvm, "microvm"},
    Spelling{Isolation::vm, "vm"},
};
constexpr std::array kEgresses{
    Spelling{Egress::unrestricted, "unrestricted"},
    Spelling{Egress::allowlist, "allowlist"},
    Spelling{Egress::closed, "closed"},
};
constexpr std::array kCapabilities{
    Spelling{Capability::exec, "exec"},
    Spelling{Capability::run_code, "run_code"},
    Spelling{Capability::host_tools, "host_tools"},
    Spelling{Capability::files_in, "files_in"},
    Spelling{Capability::files_out, "files_out"},
    Spelling{Capability::files_list, "files_list"},
    Spelling{Capability::files_delete, "files_delete"},
    Spelling{Capability::snapshot, "snapshot"},
    Spelling{Capability::attached_identity, "attached_identity"},
};
constexpr std::array kOsFamilies{
    Spelling{OsFamily::posix, "posix"},
    Spelling{OsFamily::windows, "windows"},
};
constexpr std::array kSourceIntegrities{
    Spelling{SourceIntegrity::untrusted, "untrusted"},
    Spelling{SourceIntegrity::trusted, "trusted"},
};
constexpr std::array kIdentities{
    Spelling{Identity::app, "app"},
    Spelling{Identity::user, "user"},
};
constexpr std::array kEntryKinds{
    Spelling{EntryKind::file, "file"},
    Spelling{EntryKind::directory, "directory"},
    Spelling{EntryKind::symlink, "symlink"},
    Spelling{EntryKind::other, "other"},
};
constexpr std::array kOutputDispositions{
    Spelling{OutputDisposition::land, "land"},
    Spelling{OutputDisposition::consume, "consume"},
};
constexpr std::array kNameNormalizations{
    Spelling{NameNormalization::nfc, "nfc"},
    Spelling{NameNormalization::none, "none"},
};
constexpr std::array kOutcomes{
    Spelling{Outcome::exited, "exited"},
    Spelling{Outcome::signaled, "signaled"},
    Spelling{Outcome::timed_out, "timed_out"},
    Spelling{Outcome::cancelled, "cancelled"},
    Spelling{Outcome::out_of_memory, "out_of_memory"},
};
constexpr std::array kLimits{
    Spelling{Limit::memory, "memory"}, Spelling{Limit::pids, "pids"},
    Spelling{Limit::disk, "disk"},     Spelling{Limit::cpu, "cpu"},
    Spelling{Limit::files, "files"},   Spelling{Limit::time, "time"},
};
constexpr std::array kImageForms{
    Spelling{ImageForm::host, "host"},
    Spelling{ImageForm::dir, "dir"},
    Spelling{ImageForm::oci, "oci"},
    Spelling{ImageForm::docker_archive, "docker_archive"},
    Spelling{ImageForm::registry, "registry"},
};
constexpr std::array kHostToolTransports{
    Spelling{HostToolTransport::none, "none"},
    Spelling{HostToolTransport::channel, "channel"},
    Spelling{HostToolTransport::files, "files"},
};

// A value cast from outside its enumeration is shown, never hidden behind a valid word.
constexpr std::string_view kUnknown = "unknown";

template <typename Enum, std::size_t N>
std::string_view spelling_of(const std::array<Spelling<Enum>, N>& table, Enum value) {
  const auto found = std::ranges::find(table, value, &Spelling<Enum>::value);
  return found == table.end() ? kUnknown : found->text;
}

template <typename Enum, std::size_t N>
std::vector<std::string_view> all_spellings(const std::array<Spelling<Enum>, N>& table) {
  std::vector<std::string_view> texts;
  texts.reserve(N);
  for (const auto& entry : table) {
    texts.push_back(entry.text);
  }
  return texts;
}

// Refusals quote what was given; what was given may be anything.
constexpr std::size_t kQuotedBytes = 60;

template <typename Enum, std::size_t N>
Enum parse(const std::array<Spelling<Enum>, N>& table, std::string_view what,
           std::string_view text) {
  const auto found = std::ranges::find(table, text, &Spelling<Enum>::text);
  if (found != table.end()) {
    return found->value;
  }
  const std::vector<std::string_view> valid = all_spellings(table);
  const std::optional<std::string_view> near = nearest_spelling(text, valid);
  throw InvalidArgument(
      fmt::format("'{}' is no {}; the valid spellings are {}",
                  escape_for_display(text, kQuotedBytes), what, fmt::join(valid, ", ")),
      near ? fmt::format("did you mean '{}'?", *near) : std::string());
}

template <typename Enum>
std::string join(const std::set<Enum>& values) {
  if (values.empty()) {
    return "nothing";
  }
  std::vector<std::string_view> texts;
  texts.reserve(values.size());
  for (const Enum value : values) {
    texts.push_back(to_string(value));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

char lower_ascii(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a')
                                              : character;
}

char folded(char character) { return character == '-' ? '_' : lower_ascii(character); }

// Edits (insert, remove, replace one byte, swap two neighbours) between two words, letter case and
// '-' for '_' ignored.
std::size_t edit_distance(std::string_view left, std::string_view right) {
  const auto same = [](char one, char other) { return folded(one) == folded(other); };
  std::vector<std::size_t> before;
  std::vector<std::size_t> above(right.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= left.size(); ++i) {
    std::vector<std::size_t> row(right.size() + 1);
    row[0] = i;
    for (std::size_t j = 1; j <= right.size(); ++j) {
      const std::size_t change = same(left[i - 1], right[j - 1]) ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + change});
      if (i > 1 && j > 1 && same(left[i - 1], right[j - 2]) && same(left[i - 2], right[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(above, std::move(row));
  }
  return above.back();
}

// Whether `text`, more than a letter or two beside its dashes, is how `word` begins.
bool is_cut_short(std::string_view text, std::string_view word) {
  constexpr std::size_t kTelling = 3;
  const std::size_t letters = text.size() - std::min(text.find_first_not_of("-_"), text.size());
  return letters >= kTelling && text.size() < word.size() &&
         std::ranges::equal(text, word.substr(0, text.size()), {}, folded, folded);
}

}  // namespace

std::optional<NearSpelling> least_distant(std::string_view text,
                                          std::span<const std::string_view> valid) {
  // Longer than any word of ours: not a slip of the finger, and not worth the quadratic work.
  constexpr std::size_t kLongestWord = 64;
  if (text.empty() || text.size() > kLongestWord) {
    return std::nullopt;
  }
  std::optional<NearSpelling> nearest;
  std::size_t least = 0;
  for (const std::string_view candidate : valid) {
    const std::size_t distance = is_cut_short(text, candidate) ? 1 : edit_distance(text, candidate);
    // A third of the word mistyped is still that word; of one of a letter or two, nothing is left.
    const bool close = distance <= std::max(text.size(), candidate.size()) / 3;
    if (!nearest || (close && !nearest->is_near) ||
        (close == nearest->is_near && distance < least)) {
      nearest = NearSpelling{candidate, close};
      least = distance;
    }
  }
  return nearest;
}

std::optional<std::string_view> nearest_spelling(std::string_view text,
                                                 std::span<const std::string_view> valid) {
  const auto nearest = least_distant(text, valid);
  return nearest && nearest->is_near ? std::optional(nearest->text) : std::nullopt;
}

std::string_view to_string(Isolation value) { return spelling_of(kIsolations, value); }
std::string_view to_string(Egress value) { return spelling_of(kEgresses, value); }
std::string_view to_string(Capability value) { return spelling_of(kCapabilities, value); }
std::string_view to_string(OsFamily value) { return spelling_of(kOsFamilies, value); }
std::string_view to_string(SourceIntegrity value) { return spelling_of(kSourceIntegrities, value); }
std::string_view to_string(Identity value) { return spelling_of(kIdentities, value); }
std::string_view to_string(EntryKind value) { return spelling_of(kEntryKinds, value); }
std::string_view to_string(OutputDisposition value) {
  return spelling_of(kOutputDispositions, value);
}
std::string_view to_string(NameNormalization value) {
  return spelling_of(kNameNormalizations, value);
}
std::string_view to_string(Outcome value) { return spelling_of(kOutcomes, value); }
std::string_view to_string(Limit value) { return spelling_of(kLimits, value); }
std::string_view to_string(ImageForm value) { return spelling_of(kImageForms, value); }
std::string_view to_string(HostToolTransport value) {
  return spelling_of(kHostToolTransports, value);
}

Isolation parse_isolation(std::string_view text) {
  if (text == "none") {
    return Isolation::process;
  }
  return parse(kIsolations, "isolation rung", text);
}

Egress parse_egress(std::string_view text) { return parse(kEgresses, "egress mode", text); }

Capability parse_capability(std::string_view text) {
  if (text == "network") {
    throw InvalidArgument(
        "'network' is no capability any more: what a sandbox may reach is its egress mode "
        "(unrestricted, allowlist, closed)",
        "state the egress mode instead");
  }
  return parse(kCapabilities, "capability", text);
}

OsFamily parse_os_family(std::string_view text) { return parse(kOsFamilies, "OS family", text); }
SourceIntegrity parse_source_integrity(std::string_view text) {
  return parse(kSourceIntegrities, "source integrity", text);
}
Identity parse_identity(std::string_view text) { return parse(kIdentities, "identity", text); }
EntryKind parse_entry_kind(std::string_view text) { return parse(kEntryKinds, "entry kind", text); }
OutputDisposition parse_output_disposition(std::string_view text) {
  return parse(kOutputDispositions, "output disposition", text);
}
NameNormalization parse_name_normalization(std::string_view text) {
  return parse(kNameNormalizations, "name normalization", text);
}
Outcome parse_outcome(std::string_view text) { return parse(kOutcomes, "outcome", text); }
Limit parse_limit(std::string_view text) { return parse(kLimits, "limit", text); }
ImageForm parse_image_form(std::string_view text) { return parse(kImageForms, "image form", text); }
HostToolTransport parse_host_tool_transport(std::string_view text) {
  return parse(kHostToolTransports, "host-tool transport", text);
}

const std::vector<std::string_view>& isolation_ladder() {
  static const std::vector<std::string_view> ladder = all_spellings(kIsolations);
  return ladder;
}

bool is_known(Isolation value) {
  return std::ranges::find(kIsolations, value, &Spelling<Isolation>::value) != kIsolations.end();
}

bool meets_floor(Isolation declared, Isolation floor) {
  return is_known(declared) && is_known(floor) && declared >= floor;
}

const CapabilitySet& default_capabilities() {
  static const CapabilitySet defaults{Capability::exec, Capability::files_in};
  return defaults;
}

std::string join_names(const std::set<Capability>& values) { return join(values); }
std::string join_names(const std::set<Egress>& values) { return join(values); }
std::string join_names(const std::set<Identity>& values) { return join(values); }
std::string join_names(const std::set<OsFamily>& values) { return join(values); }
std::string join_names(const std::set<Limit>& values) { return join(values); }
std::string join_names(const std::set<ImageForm>& values) { return join(values); }

}  // namespace casemate
