#include "casemate/mcp/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <set>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/mcp/serving.h"

namespace casemate::mcp {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 8> kSeverities = {
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

void check_name(const std::string& name) {
  constexpr std::size_t kMaxBytes = 128;
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
  if (name.empty() || name.size() > kMaxBytes || name.find_first_not_of(kLetters) != name.npos) {
    throw InvalidArgument(
        fmt::format("a tool cannot be served as '{}'", escape_for_display(name)),
        fmt::format("a name has 1 to {} letters of A-Z, a-z, 0-9, _, -, .", kMaxBytes));
  }
}

bool has_parameter(const Tool& tool, std::string_view name) {
  const json::value schema = parse_json(tool.parameters());
  const json::value* properties = schema.get_object().if_contains("properties");
  return properties != nullptr && properties->is_object() &&
         properties->get_object().contains(name);
}

void check_tools(const ServerOptions& options) {
  std::set<std::string_view> names;
  for (const ServedTool& served : options.tools) {
    check_name(served.tool.name());
    if (!names.insert(served.tool.name()).second) {
      throw InvalidArgument(fmt::format("there are two tools named '{}'", served.tool.name()));
    }
    if (options.conversations.handles == Handles::yes &&
        has_parameter(served.tool, "conversation")) {
      throw InvalidArgument(
          fmt::format("tool '{}' has a parameter 'conversation' of its own", served.tool.name()),
          "rename it, or serve the tool without handles");
    }
  }
}

// What needs approval and has nobody to give it.
void leave_out_unapprovable(ServerOptions& options) {
  if (options.approve) return;
  if (options.ask_clients == AskClients::yes) {
    for (const ServedTool& served : options.tools) {
      if (served.tool.approval_mode() != ApprovalMode::always_require) continue;
      write_log(options.log, LogLevel::info,
                fmt::format("tool '{}' asks for approval before each call: it is served to clients "
                            "that can ask their user",
                            served.tool.name()));
    }
    return;
  }
  std::erase_if(options.tools, [&options](const ServedTool& served) {
    if (served.tool.approval_mode() != ApprovalMode::always_require) return false;
    write_log(options.log, LogLevel::warning,
              fmt::format("tool '{}' is not served: it asks for approval before each call, and "
                          "there is nobody to give it",
                          served.tool.name()));
    return true;
  });
}

ServerOptions checked(ServerOptions options) {
  check_tools(options);
  leave_out_unapprovable(options);
  return options;
}

}  // namespace

std::string_view to_string(Severity severity) {
  return kSeverities[static_cast<std::size_t>(severity)];
}

std::optional<Severity> find_severity(std::string_view text) {
  const auto found = std::ranges::find(kSeverities, text);
  if (found == kSeverities.end()) return std::nullopt;
  return static_cast<Severity>(found - kSeverities.begin());
}

ServerState::ServerState(ServerOptions given)
    : options(checked(std::move(given))),
      handles(options.conversations.max_handles, options.conversations.idle),
      pool(options.calls, options.log) {}

const ServedTool* ServerState::find_tool(std::string_view name) const {
  const auto found = std::ranges::find_if(
      options.tools, [name](const ServedTool& served) { return served.tool.name() == name; });
  return found == options.tools.end() ? nullptr : &*found;
}

std::shared_ptr<Conversation> ServerState::new_conversation() {
  return std::make_shared<Conversation>(options.conversations.end);
}

Server::Server(ServerOptions options) : state_(std::make_shared<ServerState>(std::move(options))) {}

std::shared_ptr<Peer> Server::connect(Caller caller) const {
  return std::make_shared<Peer>(state_, std::move(caller));
}

const MessageBounds& Server::message_bounds() const { return state_->options.messages; }

std::vector<std::string> Server::tool_names() const {
  std::vector<std::string> names;
  for (const ServedTool& served : state_->options.tools) names.push_back(served.tool.name());
  return names;
}

std::size_t Server::in_flight() const { return state_->in_flight; }

std::size_t Server::stop(std::chrono::nanoseconds patience) const noexcept {
  state_->handles.clear();
  return state_->pool.stop(patience);
}

}  // namespace casemate::mcp
