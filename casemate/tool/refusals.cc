#include "casemate/tool/refusals.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <system_error>

#include "casemate/base/one_line.h"
#include "casemate/base/utf8.h"

namespace casemate {
namespace {

struct Sentence {
  std::string_view code;
  std::string_view text;
};

constexpr std::string_view kErrorPrefix = "Error: ";

// What a model can do about it stands in the sentence; why it happened stands in the log, because
// provider text may hold host paths, addresses and what other tenants do.
constexpr std::string_view kUnavailable =
    "the sandbox is not available, so nothing can be run at the moment. Go on without it, or say "
    "that it is needed.";
constexpr std::string_view kAgainstPolicy =
    "the host's policy does not permit this tool to run here. Trying again will not change that.";
constexpr std::string_view kWiring =
    "this tool is not set up for what was asked. Trying again will not change that.";
constexpr std::string_view kImage =
    "the sandbox's image cannot run this tool. Trying again will not change that.";

constexpr Sentence kSentences[] = {
    {"InvalidArgument", kWiring},
    {"ConfigInvalid", kWiring},
    {"NoSandboxBackend", "no sandbox is configured here, so nothing can be run."},
    {"SandboxBackendNotPermitted", kAgainstPolicy},
    {"SandboxCapabilityNotSupported", kAgainstPolicy},
    {"SandboxOsFamilyNotSupported", kAgainstPolicy},
    {"SandboxCapabilityDenied", kAgainstPolicy},
    {"SandboxIdentityDenied", kAgainstPolicy},
    {"SandboxEgressNotEnforced", kAgainstPolicy},
    {"SandboxTransferLimitsNotPermitted", kAgainstPolicy},
    {"SandboxLimitNotEnforceable", kAgainstPolicy},
    {"SandboxImageNotSupported", kImage},
    {"SandboxImageInvalid", kImage},
    {"SandboxUnavailable", kUnavailable},
    {"SandboxTimeout",
     "the sandbox did not answer in time. What the program did by then is not known; it was "
     "ended."},
    {"SandboxCancelled", "the call was cancelled."},
    {"SandboxBusy",
     "the sandbox of this conversation is in use at this moment, by a run with other settings or "
     "by "
     "a copy that is made of it. Try again when that has ended."},
    {"NoSuchSandbox", "the sandbox does not exist any more."},
    {"NoSuchSnapshot", "the snapshot that the sandbox begins from does not exist any more."},
    {"SandboxSnapshotMismatch", kWiring},
    {"SandboxPathRefused", "a file could not be put into the sandbox: its path was refused."},
    {"SandboxFileError", "a file could not be read or put into the sandbox."},
};

}  // namespace

std::string sentence_for_model(const std::exception& failure) {
  std::string_view text = kUnavailable;
  std::string own;
  if (const auto* refusal = dynamic_cast<const SandboxError*>(&failure)) {
    if (dynamic_cast<const ModelFacingRefusal*>(refusal) != nullptr ||
        dynamic_cast<const SandboxOutputError*>(refusal) != nullptr) {
      own = one_line(refusal->message());
      text = own;
    } else {
      const auto* found = std::ranges::find(kSentences, refusal->code(), &Sentence::code);
      if (found != std::end(kSentences)) text = found->text;
    }
  }
  return fmt::format("{}{}", kErrorPrefix, text);
}

std::string_view without_error_prefix(std::string_view sentence) {
  if (sentence.starts_with(kErrorPrefix)) sentence.remove_prefix(kErrorPrefix.size());
  return sentence;
}

std::string_view failure_code(const std::exception& failure) {
  const auto* refusal = dynamic_cast<const SandboxError*>(&failure);
  if (refusal != nullptr) return refusal->code();
  // A step of the host's own that its machine refused: a thread, a descriptor.
  return dynamic_cast<const std::system_error*>(&failure) != nullptr ? "SandboxUnavailable"
                                                                     : "InternalError";
}

std::string_view failure_status(const std::exception& failure) {
  const std::string_view code = failure_code(failure);
  if (code == "SandboxCancelled") return "cancelled";
  const bool failed =
      code == "InternalError" || code == "SandboxUnavailable" || code == "SandboxTimeout";
  return failed ? "failed" : "refused";
}

std::string line_for_log(const std::exception& failure) {
  constexpr std::size_t kMaxLogBytes = 2000;
  const auto* refusal = dynamic_cast<const SandboxError*>(&failure);
  if (refusal == nullptr) return escape_for_display(failure.what(), kMaxLogBytes);
  std::string line =
      fmt::format("{}: {}", refusal->code(), escape_for_display(refusal->message(), kMaxLogBytes));
  if (!refusal->hint().empty()) {
    line += fmt::format(" ({})", escape_for_display(refusal->hint(), kMaxLogBytes));
  }
  return line;
}

}  // namespace casemate
