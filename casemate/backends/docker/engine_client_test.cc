#include "casemate/backends/docker/engine_client.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "casemate/core/errors.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/support/scratch.h"

namespace casemate::docker {
namespace {

// Takes one connection, hears a request and does with it what the test says.
class FakeEngine {
 public:
  explicit FakeEngine(std::function<void(int)> act)
      : listener_(sys::make_stream_socket()), path_(scratch_ / "engine.sock") {
    sys::bind_to_path(listener_.get(), path_);
    sys::start_listening(listener_.get());
    thread_ = std::jthread([this, act = std::move(act)] {
      pollfd entry{listener_.get(), POLLIN, 0};
      poll(&entry, 1, -1);
      sys::UniqueFd connection = sys::accept_connection(listener_.get());
      sys::make_blocking(connection.get(), std::chrono::seconds(20));
      char letter = 0;
      while (!request_.ends_with("\r\n\r\n") && read(connection.get(), &letter, 1) == 1) {
        request_ += letter;
      }
      act(connection.get());
    });
  }
  EngineClient client() const { return EngineClient(parse_engine_address(path_), nullptr); }
  // What it heard, once it is done.
  const std::string& request() {
    thread_.join();
    return request_;
  }

 private:
  Scratch scratch_;
  sys::UniqueFd listener_;
  std::string path_;
  std::string request_;
  std::jthread thread_;
};

void say(int connection, std::string_view text) {
  ASSERT_EQ(send(connection, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

std::function<void(int)> saying(std::string text) {
  return [text = std::move(text)](int connection) { say(connection, text); };
}

TEST(EngineClient, NobodyThereIsUnavailable) {
  const Scratch scratch;
  const EngineClient client(parse_engine_address((scratch / "none.sock").string()), nullptr);
  EXPECT_THROW(client.send({.method = "GET", .target = "/version"}, {}), SandboxUnavailable);
}

TEST(EngineClient, ReadsAnAnswerOfAnyStatus) {
  FakeEngine engine(saying("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone"));
  const EngineReply reply = engine.client().send({.method = "GET", .target = "/x?y=1"}, {});
  EXPECT_EQ(reply.status, 404U);
  EXPECT_EQ(reply.body, "none");
  EXPECT_TRUE(engine.request().starts_with("GET /x?y=1 HTTP/1.1\r\n"));
}

// EG-22
TEST(EngineClient, AProxyOfTheHostsNeverSeesTheEngine) {
  for (const char* name : {"HTTP_PROXY", "http_proxy", "ALL_PROXY"}) {
    setenv(name, "http://127.0.0.1:1", 1);
  }
  FakeEngine engine(saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_EQ(engine.client().send({.method = "GET", .target = "/version"}, {}).status, 200U);
  EXPECT_TRUE(engine.request().starts_with("GET /version HTTP/1.1\r\n"));
  for (const char* name : {"HTTP_PROXY", "http_proxy", "ALL_PROXY"}) unsetenv(name);
}

TEST(EngineClient, GivesABodyOnAsItComes) {
  FakeEngine engine(saying(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
  std::string heard;
  EngineRequest request{.method = "POST", .target = "/x"};
  request.on_body = [&](std::string_view bytes) { heard += bytes; };
  EXPECT_EQ(engine.client().send(request, {}).body, "");
  EXPECT_EQ(heard, "onetwo");
}

TEST(EngineClient, WhatBreaksOffOrIsNoHttpIsUnavailable) {
  for (const std::string text :
       {"", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "garbage\r\n\r\n"}) {
    FakeEngine engine(saying(text));
    EXPECT_THROW(engine.client().send({.method = "GET", .target = "/x"}, {}), SandboxUnavailable)
        << text;
  }
}

TEST(EngineClient, ASilentEngineIsNotWaitedForBeyondTheBounds) {
  const auto wait_for_end = [](int connection) {
    char letter = 0;
    while (read(connection, &letter, 1) > 0) {
    }
  };
  {
    FakeEngine engine(wait_for_end);
    CallControl control;
    control.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    EXPECT_THROW(engine.client().send({.method = "GET", .target = "/x"}, control), SandboxTimeout);
  }
  FakeEngine engine(wait_for_end);
  std::stop_source source;
  CallControl control;
  control.stop = source.get_token();
  const std::jthread stops([&] { source.request_stop(); });
  EXPECT_THROW(engine.client().send({.method = "GET", .target = "/x"}, control), SandboxCancelled);
}

TEST(EngineClient, AnAnswerThatIsWaitedForIsSeenWhenItsBodyBegins) {
  const auto [ours, theirs] = sys::socket_pair(sys::SocketType::stream);
  FakeEngine engine([&, far = theirs.get()](int connection) {
    say(connection, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    say(far, "x");
    char letter = 0;
    EXPECT_EQ(read(far, &letter, 1), 1);
    say(connection, "2\r\n{}\r\n0\r\n\r\n");
  });
  EngineClient::Pending pending = engine.client().begin({.method = "POST", .target = "/wait"});
  char letter = 0;
  ASSERT_EQ(read(ours.get(), &letter, 1), 1);
  EXPECT_FALSE(pending.has_answer());
  say(ours.get(), "x");
  pollfd entry{pending.descriptor(), POLLIN, 0};
  poll(&entry, 1, -1);
  EXPECT_TRUE(pending.has_answer());
}

// Docker does so now and then with gVisor's runsc.
TEST(EngineClient, AStreamIsOverWithItsContainerThoughItsConnectionStaysOpen) {
  const auto [ours, theirs] = sys::socket_pair(sys::SocketType::stream);
  FakeEngine waiting([far = theirs.get()](int connection) {
    char letter = 0;
    EXPECT_EQ(read(far, &letter, 1), 1);
    say(connection, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  });
  FakeEngine open([](int connection) {
    say(connection, "HTTP/1.1 101 UPGRADED\r\n\r\n");
    char letter = 0;
    while (read(connection, &letter, 1) > 0) {
    }
  });
  EngineReply reply;
  auto stream = open.client().attach({.method = "POST", .target = "/exec/1/start"},
                                     waiting.client().begin({.method = "POST", .target = "/wait"}),
                                     reply, {}, {});
  ASSERT_TRUE(stream);
  const guest::StreamEnd end = stream->take_end();
  pollfd entry{end.in.get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  say(ours.get(), "x");
  EXPECT_EQ(poll(&entry, 1, 20'000), 1);
  char letter = 0;
  EXPECT_EQ(read(end.in.get(), &letter, 1), 0);
}

TEST(EngineClient, EncodesWhatATargetCannotHold) {
  EXPECT_EQ(encode_for_target("a-Z_0.~"), "a-Z_0.~");
  EXPECT_EQ(encode_for_target("a/b c\"{}"), "a%2Fb%20c%22%7B%7D");
}

}  // namespace
}  // namespace casemate::docker
