#pragma once

// What a client is told of a call that runs.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "casemate/mcp/serving.h"

namespace casemate::mcp {

// Turns a tool's steps and output into `notifications/progress`, where a token came, and its steps
// into `notifications/message`, where the client asked for log messages. Nothing is sent for a call
// that was cancelled. The listeners of one `ToolCall`; may be told from several threads.
class CallProgress {
 public:
  // Of output, which a program may write without end: one notification in so long. Ten a second is
  // what a person can follow.
  static constexpr std::chrono::milliseconds kOutputInterval{100};

  CallProgress(std::string tool, const RequestContext& context, const RunningCall& call,
               Exchange& exchange)
      : tool_(std::move(tool)), context_(context), call_(call), exchange_(exchange) {}

  void step(std::string_view what);
  void output(std::size_t bytes);
  // A line for the client's log alone.
  void log(Severity severity, std::string_view text);

 private:
  void send_progress(std::string_view message);

  const std::string tool_;
  const RequestContext& context_;
  const RunningCall& call_;
  Exchange& exchange_;
  std::mutex mutex_;
  std::uint64_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::chrono::steady_clock::time_point last_output_{};
};

}  // namespace casemate::mcp
