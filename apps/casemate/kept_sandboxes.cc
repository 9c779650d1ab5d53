#include "apps/casemate/kept_sandboxes.h"

#include <fmt/format.h>

#include "casemate/core/errors.h"

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

}  // namespace casemate::app
