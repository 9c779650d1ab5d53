#include "apps/casemate/refusal.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "apps/casemate/console.h"
#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/run_json.h"
#include "casemate/transfer/artifact_name.h"

namespace casemate::app {

void say_error(const std::exception& failure) noexcept {
  const auto* refusal = dynamic_cast<const SandboxError*>(&failure);
  if (refusal == nullptr) {
    say_error("InternalError", failure.what(), "run again with -v and report what it says");
    return;
  }
  // A name that was refused is kept from models; the operator may see it, escaped.
  const auto* name = dynamic_cast<const ArtifactNameRefused*>(refusal);
  say_error(refusal->code(), name != nullptr ? name->operator_message() : refusal->what(),
            refusal->hint());
}

int report(const std::exception& failure, OutputFormat format) {
  say_error(failure);
  const bool unwritable = dynamic_cast<const OutputFailed*>(&failure) != nullptr;
  if (format == OutputFormat::streams || unwritable) return kExitRefused;
  try {
    write_all(1, codeact_failure_json(failure) + '\n');
  } catch (const OutputClosed&) {
    return kExitOutputClosed;
  } catch (const OutputFailed& failed) {
    say_error(failed);
  }
  return kExitRefused;
}

}  // namespace casemate::app
