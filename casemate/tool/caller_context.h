#pragma once

#include <functional>
#include <optional>
#include <string>

namespace casemate {

// Who is calling, read anew at each invocation on the invoking thread. The model has no say in it:
// these come from the host's own session state. Both must be set; what they throw counts as an
// unavailable sandbox.
struct CallerContext {
  // The tenant, user or other trust boundary that the call belongs to.
  std::function<std::string()> current_scope;
  // The conversation; absent when there is none, and then nothing runs.
  std::function<std::optional<std::string>()> current_thread_id;
};

}  // namespace casemate
