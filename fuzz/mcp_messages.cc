// Messages of an MCP client, a line each, to a server of one small tool: what is answered, how
// often, and in which form, against a second reading of the same line.

#include <boost/json.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "casemate/base/json.h"
#include "casemate/mcp/server.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

namespace json = boost::json;

class Replies final : public mcp::Outlet {
 public:
  void send(mcp::Outgoing message) noexcept override {
    const std::lock_guard lock(mutex_);
    late_ = late_ || finished_ > 0;
    if (message.kind == mcp::Outgoing::Kind::reply) replies_.push_back(std::move(message.text));
  }
  void finished() noexcept override {
    const std::lock_guard lock(mutex_);
    ++finished_;
    changed_.notify_all();
  }

  std::vector<std::string> all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_ > 0; });
    require(finished_ == 1 && !late_, "a message is over once, and then nothing follows");
    return replies_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> replies_;
  int finished_ = 0;
  bool late_ = false;
};

bool is_string(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string();
}

// Nothing is said to a notification, nor to an answer.
bool is_answered(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr || !is_string(*object, "jsonrpc") || object->at("jsonrpc") != "2.0") {
    return true;
  }
  const json::value* id = object->if_contains("id");
  if (!object->contains("method")) {
    const bool has_id = id != nullptr && (id->is_string() || id->is_int64() || id->is_uint64());
    return !has_id || (id->is_string() && id->get_string().size() > mcp::kMaxIdBytes) ||
           !(object->contains("result") || object->contains("error"));
  }
  return id != nullptr || !is_string(*object, "method") ||
         object->at("method").get_string().size() > mcp::kMaxIdBytes;
}

void check_reply(const json::value& reply, const json::value* asked) {
  require(reply.is_object(), "a reply is an object");
  const json::object& object = reply.get_object();
  require(is_string(object, "jsonrpc") && object.at("jsonrpc") == "2.0", "a reply is JSON-RPC 2.0");
  require(object.contains("result") != object.contains("error"), "a reply is a result or an error");
  const json::value* id = object.if_contains("id");
  if (object.contains("result")) {
    require(asked != nullptr && asked->is_object() && id != nullptr &&
                *id == asked->get_object().at("id"),
            "a result has the id of its request");
  } else {
    require(object.at("error").is_object() && object.at("error").at("code").is_int64() &&
                is_string(object.at("error").get_object(), "message"),
            "an error has a code and a message");
  }
}

mcp::Server small_server() {
  mcp::ServerOptions options;
  options.tools = {
      {make_tool({.name = "same", .run = [](const json::object&, const ToolCall& call) {
                    if (call.progress) call.progress("a step");
                    return ToolResult{.text = "same", .structured = "{}"};
                  }})}};
  options.read_artifact = [](const LandedArtifact&, std::uint64_t) { return std::string(); };
  options.conversations.handles = mcp::Handles::yes;
  return mcp::Server(std::move(options));
}

void check_line(mcp::Peer& peer, std::string_view line) {
  const mcp::Received received = mcp::read_message(line);
  require(!received.parts.empty(), "a line is a message or a fault");
  const auto outlet = std::make_shared<Replies>();
  peer.receive(received, outlet);
  const std::vector<std::string> replies = outlet->all();
  std::optional<json::value> value;
  try {
    value = parse_json(line);
  } catch (const JsonError&) {
    require(replies.size() == 1, "what is no JSON is answered once");
  }
  require(replies.size() <= 1, "a line is answered at most once");
  for (const std::string& reply : replies) {
    const json::value read = parse_json(reply, {.max_bytes = reply.size()});
    require(reply.find('\n') == reply.npos, "a reply is one line");
    if (const json::array* batch = read.if_array()) {
      require(value && value->is_array() && batch->size() <= value->get_array().size(),
              "a batch of replies has no more than were asked");
      continue;
    }
    check_reply(read, value ? &*value : nullptr);
  }
  if (value && !value->is_array()) {
    require(replies.size() == (is_answered(*value) ? 1U : 0U),
            "requests and faults are answered, notifications are not");
  }
}

}  // namespace

void fuzz_mcp_messages(std::string_view bytes) {
  const mcp::Server server = small_server();
  const auto peer = server.connect({.identity = "fuzz", .is_one_client = true});
  Input input(bytes);
  while (!input.empty()) check_line(*peer, input.until('\n'));
  peer->close();
  server.stop(std::chrono::seconds(10));
}

}  // namespace casemate::fuzz
