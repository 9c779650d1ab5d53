#pragma once

// For tests of host tools: small functions to register, and a gate to hold them at.

#include <boost/json.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/host_tools/registry.h"

namespace casemate {

inline constexpr const char* kAnyArguments = R"({"type":"object"})";

inline HostTool tool_of(std::string name, HostToolFunction function) {
  HostTool tool;
  tool.name = std::move(name);
  tool.description = "for a test";
  tool.parameters = kAnyArguments;
  tool.function = std::move(function);
  return tool;
}

// Returns its arguments.
inline HostTool echo() {
  return tool_of("echo", [](const boost::json::object& arguments, const HostToolContext&) {
    return boost::json::value(arguments);
  });
}

// A place where functions wait until they are let go. Its end lets them go and waits until the last
// has left it, so that a test may return while some are on their way.
class Gate {
 public:
  Gate() = default;
  ~Gate() {
    open();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return inside_ == 0; });
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --inside_;
    changed_.notify_all();
  }
  void await(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  int inside_ = 0;
  bool open_ = false;
};

// Collects log lines from any thread, and lets a test wait for one.
class KeptLog {
 public:
  Log hook() {
    return [state = state_](LogLevel, std::string_view text) {
      const std::lock_guard lock(state->mutex);
      state->text += std::string(text) + "\n";
      state->changed.notify_all();
    };
  }
  std::string text() const {
    const std::lock_guard lock(state_->mutex);
    return state_->text;
  }
  void await(std::string_view part) const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->text.find(part) != std::string::npos; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::string text;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline std::shared_ptr<HostToolRegistry> registry_of(std::vector<HostTool> tools,
                                                     HostToolRegistryOptions options = {}) {
  auto registry = std::make_shared<HostToolRegistry>(std::move(options));
  for (HostTool& tool : tools) registry->register_tool(std::move(tool));
  return registry;
}

}  // namespace casemate
