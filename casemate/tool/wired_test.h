#pragma once

// For tests of tool/: a router over the fake, and what goes with it.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "casemate/backends/in_process/backend.h"
#include "casemate/policy/router.h"
#include "casemate/tool/caller_context.h"

namespace casemate {

inline BackendDeclarations able_declarations() {
  BackendDeclarations declared = in_process::default_declarations();
  declared.capabilities = {Capability::exec, Capability::files_in, Capability::files_out};
  return declared;
}

// A fake that claims the rung `process` and a router that allows it.
struct Wired {
  explicit Wired(
      in_process::InProcessSandboxOptions sandbox_options = {},
      in_process::InProcessBackendOptions backend_options = {.declarations = able_declarations()})
      : sandbox(std::make_shared<in_process::InProcessSandbox>(std::move(sandbox_options))),
        backend(std::make_shared<in_process::InProcessSandboxBackend>(sandbox,
                                                                      std::move(backend_options))),
        router({backend}, {.min_isolation = Isolation::process}) {}

  std::shared_ptr<in_process::InProcessSandbox> sandbox;
  std::shared_ptr<in_process::InProcessSandboxBackend> backend;
  SandboxRouter router;
};

inline CallerContext fixed_context(const std::string& scope = "tenant",
                                   const std::string& thread = "thread-1") {
  return {[scope] { return scope; }, [thread] { return thread; }};
}

// A log that can be looked at.
class LogLines {
 public:
  Log log() {
    return [this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(std::string(to_string(level)) + ": " + std::string(text));
    };
  }
  // All of it, a line each.
  std::string text() const {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace casemate
