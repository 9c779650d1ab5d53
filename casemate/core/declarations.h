#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "casemate/core/limits.h"
#include "casemate/core/vocabulary.h"

namespace casemate {

// All that a backend claims, as one value. The defaults are what silence means. It is read anew at
// each match, so it may follow the provider; it must never claim more than the provider does.
struct BackendDeclarations {
  std::string name{};
  // Absent or out of range is refused at any floor, never ranked.
  std::optional<Isolation> isolation{};
  // Modes it *enforces*; empty enforces nothing.
  std::set<Egress> egress_modes{};
  CapabilitySet capabilities = default_capabilities();
  // A 0 anywhere is malformed and refused.
  SandboxLimits limits{};
  std::set<OsFamily> os_families{};
  std::set<ImageForm> image_forms{};
  HostToolTransport host_tool_transport = HostToolTransport::none;
  // Resource bounds it holds (memory, pids, cpu, disk, files, time); `cpu` means both share and
  // seconds only where `cpu_seconds_enforceable` says so.
  std::set<Limit> enforceable_limits{};
  bool cpu_seconds_enforceable = false;
  // Why not, for a person, of bounds that it does not hold on this machine and would on another.
  std::map<Limit, std::string> why_not_enforceable{};
};

}  // namespace casemate
