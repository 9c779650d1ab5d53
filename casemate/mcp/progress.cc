#include "casemate/mcp/progress.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "casemate/base/json.h"

namespace casemate::mcp {

namespace json = boost::json;

void CallProgress::step(std::string_view what) {
  {
    const std::lock_guard lock(mutex_);
    send_progress(what);
  }
  log(Severity::info, what);
}

void CallProgress::output(std::size_t bytes) {
  if (!context_.progress_token) return;
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  if (now - last_output_ < kOutputInterval) return;
  last_output_ = now;
  send_progress(fmt::format("the program has printed {} bytes", bytes_));
}

void CallProgress::log(Severity severity, std::string_view text) {
  if (!context_.log_level || severity < *context_.log_level || call_.silenced) return;
  exchange_.notify(notification_text(
      "notifications/message",
      {{"level", to_string(severity)}, {"logger", tool_}, {"data", json::string(text)}}));
}

void CallProgress::send_progress(std::string_view message) {
  if (!context_.progress_token || call_.silenced) return;
  json::object params;
  params["progressToken"] = parse_json(*context_.progress_token);
  params["progress"] = ++count_;
  if (context_.features().progress_message) params["message"] = message;
  exchange_.notify(notification_text("notifications/progress", params));
}

}  // namespace casemate::mcp
