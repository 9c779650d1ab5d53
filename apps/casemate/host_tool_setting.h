#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "casemate/core/host_tools.h"
#include "casemate/host_tools/declaration.h"

namespace casemate::app {

// One command of the host that programs may call, as an option or casemate.toml has it.
struct HostToolSetting {
  std::string name;
  // For `sh -c`.
  std::string command;
  std::string description{};
  // JSON Schema of the arguments.
  std::string parameters = R"({"type": "object"})";
  // Absent: unstamped. It acts as the application, answers what nobody vouches for, and carries
  // something out.
  std::optional<HostToolDeclaration> declaration{};
  // Absent: that of all.
  std::optional<std::chrono::nanoseconds> timeout{};
  std::optional<std::size_t> max_concurrency{};
  // FILE:LINE of one from casemate.toml, and of what it says there of its own.
  std::string where{};
  std::string identity_where{};
  std::string parameters_where{};
};

// All of a run's.
struct HostToolSettings {
  std::vector<HostToolSetting> tools;
  std::uint64_t max_calls = kDefaultHostToolCalls;
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
  bool require_declared = false;
};

}  // namespace casemate::app
