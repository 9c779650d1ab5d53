#pragma once

#include <chrono>
#include <optional>
#include <stop_token>

namespace casemate {

// Bounds of one call that can wait. Copyable; the token must outlive nothing (it shares state).
//
// `deadline` bounds the *provider*: past it the call throws `SandboxTimeout`. It never bounds the
// program: `ExecRequest::timeout` does, and gives an outcome. `stop` gives the outcome `cancelled`
// in an exec and `SandboxCancelled` elsewhere.
struct CallControl {
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  std::stop_token stop{};
};

}  // namespace casemate
