#include "apps/casemate/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "apps/casemate/console.h"
#include "apps/casemate/values.h"
#include "casemate/kinds/codeact/run_json.h"
#include "casemate/local/diagnosis.h"
#include "casemate/tool/refusals.h"
#include "casemate/transfer/artifact_name.h"

namespace casemate::app {

namespace {

struct HintInOptions {
  std::string_view code;
  // Translated only where the library's hint has this in it.
  std::string_view when;
  // Empty: the library's, its number as a size.
  std::string_view hint;
};

constexpr std::string_view kGiveAtMost = "give at most ";

constexpr auto kHints = std::to_array<HintInOptions>({
    {"SandboxTransferCapExceeded", "files in",
     "raise --files-in-limit PER_FILE,TOTAL,COUNT, or share less"},
    {"SandboxTransferCapExceeded", "files out",
     "raise --files-out-limit PER_FILE,TOTAL,COUNT, or have the program write less"},
    {"SandboxTransferLimitsNotPermitted", "",
     "lower --files-in-limit or --files-out-limit; `casemate backends` shows the most a backend "
     "takes"},
    {"SandboxBackendNotPermitted", "",
     "lower --min-isolation, or choose a backend of that rung; `casemate backends` lists them"},
    {"SandboxCapabilityDenied", "",
     "leave out --deny-capability, or what needs the capability (files_out: --output and "
     "--manifest; host_tools: --host-tool and the tools of casemate.toml)"},
    {"SandboxIdentityDenied", "",
     "leave out --deny-identity, or the host tools that act under it; in casemate.toml identity = "
     "\"none\" says of a tool that it uses no authority"},
    {"SandboxUnavailable", "acquire a new one",
     "it has ended or was ended (`casemate ls` lists those that there are); `casemate run`, or "
     "`casemate run --keep`, makes a new one"},
    {"SandboxLimitNotEnforceable", kGiveAtMost, ""},
    {"SandboxLimitNotEnforceable", "",
     "leave the limit out (a default that cannot be held shows as limits_not_held); `casemate "
     "doctor` says what would have it held"},
    {"SandboxImageNotSupported", "that it takes",
     "`casemate run --help` lists the forms: linux and oci take all of them, and host without "
     "--image; docker takes registry references and ids of the engine's images"},
    {"SandboxLandingExists", "overwrite", "give --overwrite or another --out-dir"},
});

// An option of the library's, and what sets it here.
constexpr auto kSetHere = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"the backend's option state_dir", "CASEMATE_STATE_DIR"},
    {"ImageStoreOptions::directory", "CASEMATE_IMAGE_DIR"},
    {"DockerBackendOptions::image", "image in [backends.docker] of casemate.toml"},
    {"DockerBackendOptions::host", "host in [backends.docker] of casemate.toml"},
    {"DockerBackendOptions::pull", "pull in [backends.docker] of casemate.toml"},
});

// "give at most 25275990016" as "give at most 23G", which an option takes.
std::string as_size(std::string_view hint) {
  std::uint64_t bytes = 0;
  const std::string_view number = hint.substr(std::min(kGiveAtMost.size(), hint.size()));
  if (!hint.starts_with(kGiveAtMost) ||
      std::from_chars(number.begin(), number.end(), bytes).ptr != number.end()) {
    return std::string(hint);
  }
  // Not rounded away where there is little of it.
  constexpr std::uint64_t kFew = 4;
  const std::uint64_t unit = bytes >= kFew * kGiB ? kGiB : bytes >= kFew * kMiB ? kMiB : 1;
  return fmt::format("{}{}", kGiveAtMost, size_text(bytes - bytes % unit));
}

std::string hint_of_machine(const std::system_error& failure) {
  const std::string hint =
      local::remedy_for(failure.what(), failure.code().value(), local::look_at_host()).hint;
  return hint.empty() ? local::provider_hint(failure) : hint;
}

}  // namespace

std::string options_named_here(std::string text) {
  for (const auto& [option, here] : kSetHere) {
    for (auto at = text.find(option); at != text.npos; at = text.find(option, at + here.size())) {
      text.replace(at, option.size(), here);
    }
  }
  return text;
}

std::string hint_of_file_error(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "raise --disk, or share and write less";
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case EINVAL:
      return "give --file NAME=PATH with the PATH of a regular file that can be read";
    default:
      return "";
  }
}

std::string hint_in_options(std::string_view code, std::string_view hint) {
  // What already speaks of options was said here.
  if (hint.find("--") != std::string_view::npos) return options_named_here(std::string(hint));
  const auto found = std::ranges::find_if(kHints, [&](const HintInOptions& entry) {
    return entry.code == code && hint.find(entry.when) != std::string_view::npos;
  });
  if (found == kHints.end()) return options_named_here(std::string(hint));
  return found->hint.empty() ? as_size(hint) : options_named_here(std::string(found->hint));
}

Reworded in_words_of_the_command_line(const std::exception& failure) {
  const auto* refusal = dynamic_cast<const SandboxError*>(&failure);
  if (const auto* refused = dynamic_cast<const std::system_error*>(&failure)) {
    return {std::string(failure_code(failure)),
            fmt::format("this machine refused a step: {}", refused->what()),
            options_named_here(hint_of_machine(*refused))};
  }
  if (refusal == nullptr) {
    return {std::string(failure_code(failure)), failure.what(),
            "run again with -v and report what it says"};
  }
  // A name that was refused is kept from models; the operator may see it, escaped.
  const auto* name = dynamic_cast<const ArtifactNameRefused*>(refusal);
  const auto* run = dynamic_cast<const CodeactRun*>(refusal);
  const auto* file = dynamic_cast<const SandboxFileError*>(refusal);
  return {std::string(refusal->code()),
          name != nullptr ? name->operator_message() : refusal->message(),
          file != nullptr && refusal->hint().empty()
              ? hint_of_file_error(file->error_number())
              : hint_in_options(refusal->code(), refusal->hint()),
          run == nullptr ? nullptr : std::make_shared<const CodeactRun>(*run)};
}

int report(const Reworded& refusal, OutputFormat format) {
  say_error(refusal.code(), refusal.what(), refusal.hint());
  // Where output cannot be written there is nowhere to put an object.
  if (format == OutputFormat::streams || refusal.code() == "OutputFailed") return kExitRefused;
  try {
    write_all(1, codeact_failure_json(refusal, refusal.lost_run()) + '\n');
  } catch (const OutputClosed&) {
    return kExitOutputClosed;
  } catch (const OutputFailed& failed) {
    say_error(failed.code(), failed.what(), failed.hint());
  }
  return kExitRefused;
}

}  // namespace casemate::app
