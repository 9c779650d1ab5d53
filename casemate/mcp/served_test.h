#pragma once

// For tests of mcp/: a server of small tools, and a client that remembers what it was sent.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "casemate/base/json.h"
#include "casemate/mcp/server.h"

namespace casemate::mcp {

namespace json = boost::json;

// Remembers all, and can be waited for.
class RecordingOutlet final : public Outlet {
 public:
  void send(Outgoing message) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(finished_, 0) << message.text;
    sent_.push_back(std::move(message));
    changed_.notify_all();
  }
  void finished() noexcept override {
    const std::lock_guard lock(mutex_);
    ++finished_;
    changed_.notify_all();
  }

  // All that was sent, once nothing more will be.
  std::vector<Outgoing> all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_ > 0; });
    EXPECT_EQ(finished_, 1);
    return sent_;
  }
  // As soon as so many were sent.
  std::vector<Outgoing> first(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return sent_.size() >= count; });
    return sent_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Outgoing> sent_;
  int finished_ = 0;
};

// Tools: `echo` gives back its text, `steps` tells `count` steps, `wait` runs until it is stopped,
// `fail` throws, `land` lands one artifact, `where` says its conversation.
ServerOptions test_options();

// What one message is answered with, whole.
inline std::vector<Outgoing> sent_for(Peer& peer, std::string_view text,
                                      const Headers* headers = nullptr) {
  const auto outlet = std::make_shared<RecordingOutlet>();
  peer.receive(read_message(text), outlet, headers);
  return outlet->all();
}

// The same for a message with exactly one answer.
inline json::object answer(Peer& peer, std::string_view text, const Headers* headers = nullptr) {
  const std::vector<Outgoing> sent = sent_for(peer, text, headers);
  EXPECT_EQ(sent.size(), 1U) << text;
  return sent.empty() ? json::object{} : parse_json(sent.back().text).get_object();
}

inline std::string initialize(std::string_view revision) {
  return R"({"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":")" +
         std::string(revision) +
         R"(","capabilities":{},"clientInfo":{"name":"test","version":"1"}}})";
}

inline std::string call(std::string_view id, std::string_view tool, std::string_view arguments,
                        std::string_view meta = "{}") {
  return R"({"jsonrpc":"2.0","id":)" + std::string(id) +
         R"(,"method":"tools/call","params":{"_meta":)" + std::string(meta) + R"(,"name":")" +
         std::string(tool) + R"(","arguments":)" + std::string(arguments) + "}}";
}

inline constexpr std::string_view kStatelessMeta =
    R"({"io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
    R"("io.modelcontextprotocol/clientCapabilities":{}})";

// A request of the stateless revision with these params beside `_meta`.
inline std::string stateless(std::string_view method, std::string_view params = "") {
  return R"({"jsonrpc":"2.0","id":1,"method":")" + std::string(method) + R"(","params":{"_meta":)" +
         std::string(kStatelessMeta) + std::string(params) + "}}";
}

// With a session of that revision; without one, of none.
inline std::shared_ptr<Peer> connect(const Server& server, std::string_view revision = "") {
  auto peer = server.connect({"test", true});
  if (!revision.empty()) answer(*peer, initialize(revision));
  return peer;
}

// 0 for a result.
inline std::int64_t error_code(const json::object& reply) {
  return reply.contains("error") ? reply.at("error").at("code").as_int64() : 0;
}

inline std::string first_text(const json::value& reply) {
  return std::string(reply.at("result").at("content").at(0).at("text").as_string());
}

}  // namespace casemate::mcp
