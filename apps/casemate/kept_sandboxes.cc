#include "apps/casemate/kept_sandboxes.h"

#include <fmt/format.h>

#include <algorithm>

#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/spec.h"

namespace casemate::app {

void NotLookedAt::add(std::string backend, const SandboxError& why) {
  failures_.emplace_back(std::move(backend), in_words_of_the_command_line(why));
}

Reworded NotLookedAt::refusal(std::string_view what) const {
  std::string reasons;
  for (const auto& [backend, why] : failures_) {
    reasons += fmt::format("{}sandboxes of backend {} could not be looked at: {}",
                           reasons.empty() ? "" : "; ", backend, why.message());
  }
  const Reworded& first = failures_.front().second;
  return {std::string(first.code()), fmt::format("{}{}{}", what, what.empty() ? "" : "; ", reasons),
          first.hint()};
}

int NotLookedAt::report() const {
  return empty() ? 0 : app::report(refusal(), OutputFormat::streams);
}

std::vector<SandboxRecord> list_of(SandboxBackend& backend, NotLookedAt& missed) {
  try {
    return backend.list();
  } catch (const SandboxError& error) {
    missed.add(backend.declarations().name, error);
    return {};
  }
}

std::shared_ptr<Sandbox> kept_in(SandboxBackend& backend, const SandboxKey& key,
                                 const CallControl& control, NotLookedAt& missed) {
  try {
    return backend.attach(key, kCodeactKind, control);
  } catch (const NoSuchSandbox&) {
    return nullptr;
  } catch (const SandboxCancelled&) {
    throw;
  } catch (const SandboxError& error) {
    // One that is there and cannot be had is not to be mistaken for another backend's.
    NotLookedAt unheard;
    if (std::ranges::any_of(list_of(backend, unheard), [&](const SandboxRecord& record) {
          return record.key == key && record.kind == kCodeactKind;
        })) {
      throw;
    }
    missed.add(backend.declarations().name, error);
    return nullptr;
  }
}

}  // namespace casemate::app
