#pragma once

#include <map>
#include <memory>
#include <string>

#include "casemate/host_tools/channel.h"
#include "casemate/host_tools/registry.h"
#include "casemate/host_tools/run.h"

namespace casemate {

// The host tools of one call of a sandbox: a run and its channel, ended together.
//
//   HostToolSession session(registry, {.key = key});
//   auto call = sandbox.open_call({.host_tool_socket = session.socket()}, control);
//   session.serve();
//   ... start programs with session.environment(*call's host_tool_address()) ...
//   session.close();
class HostToolSession {
 public:
  // Seals the registry. Throws as `HostToolRun` and `HostToolChannel` do.
  HostToolSession(std::shared_ptr<HostToolRegistry> registry, const HostToolRunOptions& options);
  // Closes.
  ~HostToolSession();
  HostToolSession(const HostToolSession&) = delete;
  HostToolSession& operator=(const HostToolSession&) = delete;

  // For `CallProfile::host_tool_socket`.
  int socket() const { return channel_.socket(); }
  // After the call was opened.
  void serve() { channel_.serve(); }

  // What programs need to find the host: CASEMATE_HOST_TOOLS, the address, and
  // CASEMATE_HOST_TOOL_NAMES, the names that may be identifiers, parted by spaces, as far as they
  // fit in 32 KiB.
  std::map<std::string, std::string> environment(const std::string& address) const;

  HostToolRun& run() { return run_; }
  HostToolCounters counters() const { return run_.counters(); }

  // Cuts the programs off, then closes the run. Idempotent; never throws.
  void close() noexcept;

 private:
  std::shared_ptr<HostToolRegistry> registry_;
  HostToolRun run_;
  HostToolChannel channel_;
};

}  // namespace casemate
