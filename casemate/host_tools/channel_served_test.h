#pragma once

// For tests: a channel of a run with these tools, and what it logs.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "casemate/host_tools/channel.h"
#include "casemate/host_tools/registry.h"
#include "casemate/host_tools/run.h"
#include "casemate/host_tools/tools_test.h"
#include "casemate/sys/socket.h"

namespace casemate {

inline constexpr std::uint64_t kMany = 1'000'000;

inline HostToolRegistryOptions roomy() {
  return {.max_host_tool_calls_per_run = kMany, .response_limits = {kMiB, 64 * kMiB, kMany}};
}

class Served {
 public:
  explicit Served(std::vector<HostTool> tools, HostToolRegistryOptions options = roomy(),
                  HostToolChannelOptions channel_options = {})
      : registry(registry_of(std::move(tools), std::move(options))),
        run(registry, {.log = log.hook(), .close_patience = std::chrono::milliseconds(200)}) {
    channel_options.log = log.hook();
    channel.emplace(run, channel_options);
    address = sys::bind_to_fresh_name(channel->socket());
    channel->serve();
  }
  ~Served() { channel->close(); }

  KeptLog log;
  std::shared_ptr<HostToolRegistry> registry;
  HostToolRun run;
  std::optional<HostToolChannel> channel;
  std::string address;
};

}  // namespace casemate
