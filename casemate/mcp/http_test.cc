#include "casemate/mcp/http.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "casemate/mcp/http_client_test.h"
#include "tests/support/scratch.h"

namespace casemate::mcp {
namespace {

using namespace std::chrono_literals;

// Says what has happened to calls of the tool `wait`, which runs until it is stopped.
class Watch {
 public:
  void began() { change(began_); }
  void stopped() { change(stopped_); }
  void ended() { change(ended_); }
  void wait_for_begun(int count) { wait(began_, count); }
  void wait_for_stopped(int count) { wait(stopped_, count); }
  void wait_for_ended(int count) { wait(ended_, count); }

 private:
  void change(int& counter) {
    const std::lock_guard lock(mutex_);
    ++counter;
    changed_.notify_all();
  }
  void wait(const int& counter, int count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [&] { return counter >= count; }));
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int began_ = 0;
  int stopped_ = 0;
  int ended_ = 0;
};

constexpr std::string_view kStatelessMeta =
    R"("_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
    R"("io.modelcontextprotocol/clientCapabilities":{}})";

// More than the kernel takes for a client that does not read.
constexpr std::size_t kLarge = 12'000'000;

class HttpFrontTest : public testing::Test {
 protected:
  void SetUp() override { start({}); }

  void start(HttpOptions options) {
    front_.reset();
    if (server_) server_->stop(20s);
    ServerOptions served;
    served.tools.push_back({make_tool(
        {.name = "say",
         .description = "Says it.",
         .parameters = R"({"type":"object","additionalProperties":false,"required":["text"],)"
                       R"("properties":{"text":{"type":"string"}}})",
         .run = [](const boost::json::object& arguments, const ToolCall&) {
           return ToolResult{.text = std::string(arguments.at("text").as_string())};
         }})});
    served.tools.push_back({make_tool(
        {.name = "wait", .description = "Waits.", .run = [this](const auto&, const ToolCall& call) {
           call.progress("waiting");
           std::mutex mutex;
           std::condition_variable_any never;
           std::unique_lock lock(mutex);
           watch_.began();
           never.wait(lock, call.control.stop, [] { return false; });
           watch_.stopped();
           return ToolResult{.text = "stopped"};
         }})});
    served.tools.push_back({make_tool(
        {.name = "large", .description = "Says much.", .run = [](const auto&, const auto&) {
           return ToolResult{.text = std::string(kLarge, 'x')};
         }})});
    served.tools.push_back({make_tool(
        {.name = "land", .description = "Lands.", .run = [](const auto&, const auto&) {
           return ToolResult{.text = "landed", .artifacts = {{"a.txt", "a.txt", "/host/a.txt", 1}}};
         }})});
    served.read_artifact = [this](const LandedArtifact&, std::uint64_t) {
      watch_.began();
      std::unique_lock lock(gate_mutex_);
      gate_changed_.wait(lock, [this] { return gate_open_; });
      return std::string("bytes");
    };
    served.tools.push_back({make_tool({.name = "steps",
                                       .description = "Goes on when told.",
                                       .run = [this](const auto&, const ToolCall& call) {
                                         call.progress("first");
                                         std::unique_lock lock(gate_mutex_);
                                         gate_changed_.wait(lock, [this] { return gate_open_; });
                                         return ToolResult{.text = "done"};
                                       }})});
    served.conversations.end = [this](std::string_view) { watch_.ended(); };
    server_.emplace(std::move(served));
    front_ = std::make_unique<HttpFront>(*server_, std::move(options));
  }
  void TearDown() override {
    open_gate();
    front_->stop(0ms);
    EXPECT_EQ(server_->stop(20s), 0u);
  }
  void open_gate() {
    const std::lock_guard lock(gate_mutex_);
    gate_open_ = true;
    gate_changed_.notify_all();
  }

  TestClient client() { return TestClient(front_->port()); }
  TestClient::Answer ask(std::string_view text) {
    TestClient asking = client();
    asking.send(text);
    return asking.read_answer();
  }

  static std::string call(std::string_view name, std::string_view arguments = "{}",
                          std::string_view meta = {}) {
    std::string text = R"({"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":")";
    text.append(name).append(R"(","arguments":)").append(arguments);
    if (!meta.empty()) text.append(",").append(meta);
    return text + "}}";
  }
  static std::string stateless_call(std::string_view name, std::string_view arguments = "{}") {
    return post_text(call(name, arguments, kStatelessMeta),
                     "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: " +
                         std::string(name) + "\r\n");
  }
  static std::string initialize(std::string_view version = "2025-11-25",
                                std::string_view head = {}) {
    return post_text(
        R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":")" +
            std::string(version) +
            R"(","capabilities":{},"clientInfo":{"name":"test","version":"1"}}})",
        head);
  }
  // Opens a session; returns its head line.
  std::string open(std::string_view version = "2025-11-25", std::string_view head = {}) {
    const auto answer = ask(initialize(version, head));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const std::string field = "Mcp-Session-Id: ";
    const auto at = answer.head.find(field);
    if (at == std::string::npos) return {};
    const std::string line = answer.head.substr(at, answer.head.find("\r\n", at) + 2 - at);
    EXPECT_EQ(ask(post_text(R"({"jsonrpc":"2.0","method":"notifications/initialized"})",
                            line + std::string(head)))
                  .status,
              202);
    return line;
  }
  static std::string get(std::string_view head) {
    return "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n" +
           std::string(head) + "\r\n";
  }
  static std::string remove(std::string_view head) {
    return "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n" + std::string(head) + "\r\n";
  }

  Watch watch_;
  std::mutex gate_mutex_;
  std::condition_variable gate_changed_;
  bool gate_open_ = false;
  std::optional<Server> server_;
  std::unique_ptr<HttpFront> front_;
};

TEST_F(HttpFrontTest, AStatelessRequestIsServedByItselfAndNeverGivenASession) {
  const auto answer = ask(stateless_call("say", R"({"text":"hello"})"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find("hello"), std::string::npos);
  EXPECT_EQ(answer.head.find("Mcp-Session-Id"), std::string::npos);
  EXPECT_EQ(front_->sessions(), 0u);
}

TEST_F(HttpFrontTest, FieldsThatSayOtherThanTheBodyAreRefused) {
  const auto status_and_code = [&](std::string_view fields, std::string_view meta) {
    const auto answer = ask(post_text(call("say", R"({"text":"x"})", meta), fields));
    const auto body = boost::json::parse(answer.body);
    const auto* error = body.as_object().if_contains("error");
    return std::pair(answer.status, error ? error->at("code").as_int64() : 0);
  };
  const std::string version = "MCP-Protocol-Version: 2026-07-28\r\n";
  const std::string method = "Mcp-Method: tools/call\r\n";
  const std::string name = "Mcp-Name: say\r\n";
  using Pair = std::pair<int, std::int64_t>;
  EXPECT_EQ(status_and_code(version + method + name, kStatelessMeta), (Pair{200, 0}));
  EXPECT_EQ(status_and_code(method + name, kStatelessMeta), (Pair{400, -32020}));
  EXPECT_EQ(status_and_code(version + name, kStatelessMeta), (Pair{400, -32020}));
  EXPECT_EQ(status_and_code(version + method, kStatelessMeta), (Pair{400, -32020}));
  EXPECT_EQ(status_and_code(version + method + "Mcp-Name: wait\r\n", kStatelessMeta),
            (Pair{400, -32020}));
  EXPECT_EQ(status_and_code(version + "Mcp-Method: tools/list\r\n" + name, kStatelessMeta),
            (Pair{400, -32020}));
  EXPECT_EQ(status_and_code("MCP-Protocol-Version: 2025-11-25\r\n" + method + name, kStatelessMeta),
            (Pair{400, -32020}));
  EXPECT_EQ(status_and_code(version + method + "Mcp-Name: =?base64?c2F5?=\r\n", kStatelessMeta),
            (Pair{200, 0}));
  EXPECT_EQ(status_and_code("MCP-Protocol-Version: 2099-01-01\r\n" + method + name,
                            R"("_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01",)"
                            R"("io.modelcontextprotocol/clientCapabilities":{}})"),
            (Pair{400, -32022}));
}

TEST_F(HttpFrontTest, ClosingTheResponseOfAStatelessCallStopsIt) {
  TestClient asking = client();
  ASSERT_TRUE(asking.send(stateless_call("wait")));
  watch_.wait_for_begun(1);
  asking.close();
  watch_.wait_for_stopped(1);
  watch_.wait_for_ended(1);
}

TEST_F(HttpFrontTest, ASessionIsOpenedUsedAndEnded) {
  const std::string session = open();
  EXPECT_EQ(session.size(), std::string("Mcp-Session-Id: \r\n").size() + 64);
  EXPECT_EQ(front_->sessions(), 1u);
  const auto answer = ask(post_text(R"({"jsonrpc":"2.0","id":2,"method":"ping"})",
                                    session + "MCP-Protocol-Version: 2025-11-25\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"jsonrpc":"2.0","id":2,"result":{}})");
  EXPECT_EQ(ask(remove(session)).status, 204);
  EXPECT_EQ(front_->sessions(), 0u);
  EXPECT_EQ(ask(remove(session)).status, 404);
  EXPECT_EQ(ask(get(session)).status, 404);
  EXPECT_EQ(ask(post_text(R"({"jsonrpc":"2.0","id":2,"method":"ping"})", session)).status, 404);
}

TEST_F(HttpFrontTest, WhatNamesNoSessionIsRefused) {
  EXPECT_EQ(ask(post_text(R"({"jsonrpc":"2.0","id":2,"method":"ping"})")).status, 400);
  EXPECT_EQ(
      ask(post_text(R"({"jsonrpc":"2.0","id":2,"method":"ping"})", "Mcp-Session-Id: x\r\n")).status,
      404);
  EXPECT_EQ(ask(get("")).status, 400);
  EXPECT_EQ(ask(remove("")).status, 400);
  EXPECT_EQ(ask(get("MCP-Protocol-Version: 2026-07-28\r\n")).status, 405);
  EXPECT_EQ(ask(remove("MCP-Protocol-Version: 2026-07-28\r\n")).status, 405);
  EXPECT_EQ(ask(post_text("not json")).status, 400);
  const std::string session = open();
  EXPECT_EQ(ask(post_text(R"({"jsonrpc":"2.0","id":2,"method":"ping"})",
                          session + "MCP-Protocol-Version: banana\r\n"))
                .status,
            400);
}

TEST_F(HttpFrontTest, AnInitializeThatFailsOpensNothing) {
  EXPECT_NE(ask(post_text(R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":[]})"))
                .body.find("error"),
            std::string::npos);
  EXPECT_EQ(front_->sessions(), 0u);
}

TEST_F(HttpFrontTest, ASessionOfAnotherTokenDoesNotExist) {
  Scratch scratch;
  const std::string one(32, '1');
  const std::string two(32, '2');
  put(scratch / "tokens", one + "\n" + two);
  start({.http = {.tokens = std::make_shared<TokenFile>(scratch / "tokens", Log())}});
  const std::string as_one = "Authorization: Bearer " + one + "\r\n";
  const std::string as_two = "Authorization: Bearer " + two + "\r\n";
  const std::string session = open("2025-11-25", as_one);
  const std::string ping = R"({"jsonrpc":"2.0","id":2,"method":"ping"})";
  EXPECT_EQ(ask(post_text(ping, session)).status, 401);
  EXPECT_EQ(ask(post_text(ping, session + as_two)).status, 404);
  EXPECT_EQ(ask(get(session + as_two)).status, 404);
  EXPECT_EQ(ask(remove(session + as_two)).status, 404);
  EXPECT_EQ(ask(post_text(ping, session + as_one)).status, 200);
}

TEST_F(HttpFrontTest, ACallOfASessionIsResumedFromTheEventThatTheClientNames) {
  const std::string session = open();
  TestClient first = client();
  ASSERT_TRUE(
      first.send(post_text(call("steps", "{}", R"("_meta":{"progressToken":1})"), session)));
  const std::string primed = first.read_until("data: \n\n");
  const auto at = primed.find("id: ");
  ASSERT_NE(at, std::string::npos);
  const std::string id = primed.substr(at + 4, primed.find('\n', at) - at - 4);
  EXPECT_NE(first.read_until("\n\n\r\n").find("notifications/progress"), std::string::npos);
  first.close();

  TestClient second = client();
  ASSERT_TRUE(second.send(get(session + "Last-Event-ID: " + id + "\r\n")));
  EXPECT_NE(second.read_until("first").find("notifications/progress"), std::string::npos);
  open_gate();
  const std::string rest = second.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("done"), std::string::npos);
  // And once more, as a client does that lost the end.
  TestClient third = client();
  ASSERT_TRUE(third.send(get(session + "Last-Event-ID: " + id.substr(0, id.find('.')) + ".1\r\n")));
  const std::string again = third.read_until("0\r\n\r\n");
  EXPECT_NE(again.find("done"), std::string::npos);
  EXPECT_EQ(again.find("\"progress\""), std::string::npos);

  EXPECT_EQ(ask(get(session + "Last-Event-ID: nonsense\r\n")).status, 400);
  EXPECT_EQ(ask(get(session + "Last-Event-ID: 0123456789abcdef.0\r\n")).status, 400);
  const std::string beyond = id.substr(0, id.find('.')) + ".99";
  EXPECT_EQ(ask(get(session + "Last-Event-ID: " + beyond + "\r\n")).status, 400);
  const std::string other = open();
  EXPECT_EQ(ask(get(other + "Last-Event-ID: " + id + "\r\n")).status, 400);
}

TEST_F(HttpFrontTest, AClientThatComesBackTakesTheStreamFromItsLostConnection) {
  const std::string session = open();
  TestClient first = client();
  ASSERT_TRUE(first.send(post_text(call("steps"), session)));
  const std::string primed = first.read_until("data: \n\n");
  const auto at = primed.find("id: ");
  const std::string id = primed.substr(at + 4, primed.find('\n', at) - at - 4);
  TestClient second = client();
  ASSERT_TRUE(second.send(get(session + "Last-Event-ID: " + id + "\r\n")));
  first.read_to_end();  // closed by the server
  open_gate();
  EXPECT_NE(second.read_until("0\r\n\r\n").find("done"), std::string::npos);
}

TEST_F(HttpFrontTest, ACallWhoseClientDoesNotComeBackIsStopped) {
  start({.resume_within = 1ms});
  const std::string session = open();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text(call("wait"), session)));
  asking.read_until("data: \n\n");
  watch_.wait_for_begun(1);
  asking.close();
  watch_.wait_for_stopped(1);
  EXPECT_EQ(ask(post_text(R"({"jsonrpc":"2.0","id":2,"method":"ping"})", session)).status, 200);
}

TEST_F(HttpFrontTest, ACallThatNobodyCanComeBackForIsStoppedAtOnce) {
  start({.resume_within = 1h});
  const std::string session = open("2025-06-18");
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text(call("wait"), session)));
  watch_.wait_for_begun(1);
  asking.close();
  watch_.wait_for_stopped(1);
}

TEST_F(HttpFrontTest, EndingASessionStopsItsCallsAndEndsItsConversation) {
  const std::string session = open();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text(call("wait"), session)));
  watch_.wait_for_begun(1);
  EXPECT_EQ(ask(remove(session)).status, 204);
  watch_.wait_for_stopped(1);
  watch_.wait_for_ended(1);
  EXPECT_NE(asking.read_until("0\r\n\r\n").find("0\r\n\r\n"), std::string::npos);
}

TEST_F(HttpFrontTest, ASessionThatNobodyUsesEndsAndOneWithAStreamDoesNot) {
  start({.session_idle = 1s, .resume_within = 1ms});
  const std::string held = open();
  TestClient listening = client();
  ASSERT_TRUE(listening.send(get(held)));
  listening.read_until("data: \n\n");
  open();
  // Ended by the next sweep, which comes about once a second.
  while (front_->sessions() > 1) std::this_thread::yield();
  EXPECT_EQ(ask(post_text(R"({"jsonrpc":"2.0","id":2,"method":"ping"})", held)).status, 200);
}

TEST_F(HttpFrontTest, SessionsAndTheirStreamsAreBounded) {
  start({.max_sessions = 2, .max_streams = 2});
  const std::string session = open();
  open();
  EXPECT_EQ(ask(initialize()).status, 429);
  std::vector<TestClient> waiting;
  for (int count = 0; count < 2; ++count) {
    waiting.push_back(client());
    ASSERT_TRUE(
        waiting.back().send(post_text(R"({"jsonrpc":"2.0","id":)" + std::to_string(count) +
                                          R"(,"method":"tools/call","params":{"name":"wait"}})",
                                      session)));
  }
  watch_.wait_for_begun(2);
  EXPECT_EQ(ask(post_text(call("say", R"({"text":"x"})"), session)).status, 429);
  EXPECT_EQ(ask(get(session)).status, 429);
  EXPECT_EQ(ask(post_text(R"({"jsonrpc":"2.0","id":9,"method":"ping"})", session)).status, 200);
}

TEST_F(HttpFrontTest, OneTokenLeavesSessionsToTheOthers) {
  Scratch scratch;
  put(scratch / "tokens", std::string(32, '1') + "\n" + std::string(32, '2'));
  start({.http = {.tokens = std::make_shared<TokenFile>(scratch / "tokens", Log())},
         .max_sessions = 4});
  const std::string as_one = "Authorization: Bearer " + std::string(32, '1') + "\r\n";
  for (int count = 0; count < 3; ++count) open("2025-11-25", as_one);
  EXPECT_EQ(ask(initialize("2025-11-25", as_one)).status, 429);
  open("2025-11-25", "Authorization: Bearer " + std::string(32, '2') + "\r\n");
  EXPECT_EQ(front_->sessions(), 4u);
}

TEST_F(HttpFrontTest, ReadsOfArtifactsCountAmongWhatASessionMayAskAtOnce) {
  start({.max_streams = 1});
  const std::string session = open("2025-06-18");
  const std::string landed = ask(post_text(call("land"), session)).body;
  const auto at = landed.find("casemate://");
  ASSERT_NE(at, std::string::npos) << landed;
  const std::string read =
      R"({"jsonrpc":"2.0","id":8,"method":"resources/read","params":{"uri":")" +
      landed.substr(at, landed.find('"', at) - at) + R"("}})";
  TestClient first = client();
  ASSERT_TRUE(first.send(post_text(read, session)));
  watch_.wait_for_begun(1);
  EXPECT_EQ(ask(post_text(read, session)).status, 429);
  EXPECT_EQ(ask(post_text(call("land"), session)).status, 429);
  open_gate();
  EXPECT_EQ(first.read_answer().status, 200);
  EXPECT_EQ(ask(post_text(read, session)).status, 200);
}

TEST_F(HttpFrontTest, AnAnswerThatNobodyReadsGivesWayToThatOfWhoReads) {
  start({.max_answer_bytes = 20'000'000});
  TestClient silent(front_->port(), 4096);
  ASSERT_TRUE(silent.send(stateless_call("large")));
  silent.read_until("\r\n\r\n");
  const auto read = ask(stateless_call("large"));
  EXPECT_EQ(read.status, 200);
  EXPECT_GT(read.body.size(), kLarge);
  EXPECT_LT(silent.read_to_end().size(), kLarge) << "it was cut off";
}

TEST_F(HttpFrontTest, FinishedAnswersAreKeptByTheirBytes) {
  start({.max_answer_bytes = 20'000'000});
  const std::string session = open();
  const auto ask_for_much = [&] {
    TestClient asking = client();
    asking.send(post_text(call("large"), session));
    const std::string events = asking.read_until("\r\n0\r\n\r\n");
    EXPECT_GT(events.size(), kLarge);
    const auto at = events.find("id: ");
    return events.substr(at + 4, events.find('\n', at) - at - 4);
  };
  const auto resume = [&](const std::string& id) {
    TestClient asking = client();
    asking.send(get(session + "Last-Event-ID: " + id + "\r\n"));
    return asking.read_until("\r\n\r\n").substr(9, 3);
  };
  const std::string first = ask_for_much();
  EXPECT_EQ(resume(first), "200");
  const std::string second = ask_for_much();
  EXPECT_EQ(resume(first), "400") << "not kept any more";
  EXPECT_EQ(resume(second), "200");
}

TEST_F(HttpFrontTest, ASessionsEndWaitsForNoCallOfAnother) {
  const std::string other = open();
  std::vector<TestClient> waiting;
  for (int count = 0; count < 16; ++count) {  // as many as may run
    waiting.push_back(client());
    ASSERT_TRUE(waiting.back().send(stateless_call("wait")));
  }
  watch_.wait_for_begun(16);
  const std::string session = open();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text(call("wait"), session)));
  asking.read_until("data: \n\n");
  EXPECT_EQ(ask(remove(session)).status, 204);
  // Its call never ran; a conversation that had one is ended though nothing else is.
  EXPECT_NE(asking.read_until("0\r\n\r\n").find("0\r\n\r\n"), std::string::npos);
}

TEST_F(HttpFrontTest, StoppingEndsWhatRuns) {
  const std::string session = open();
  TestClient of_session = client();
  ASSERT_TRUE(of_session.send(post_text(call("wait"), session)));
  TestClient alone = client();
  ASSERT_TRUE(alone.send(stateless_call("wait")));
  watch_.wait_for_begun(2);
  front_->stop(20s);
  watch_.wait_for_stopped(2);
  watch_.wait_for_ended(2);
  EXPECT_EQ(front_->connections(), 0u);
  EXPECT_EQ(front_->sessions(), 0u);
}

TEST_F(HttpFrontTest, EachOfManyCallsInParallelGetsItsOwnAnswer) {
  std::atomic<int> right{0};
  {
    std::vector<std::jthread> clients;
    for (int number = 0; number < 20; ++number) {
      clients.emplace_back([&, number] {
        TestClient asking = client();
        for (int count = 0; count < 10; ++count) {
          const std::string text = std::to_string(number) + "-" + std::to_string(count);
          asking.send(stateless_call("say", R"({"text":")" + text + R"("})"));
          if (asking.read_answer().body.find("\"" + text + "\"") != std::string::npos) ++right;
        }
      });
    }
  }
  EXPECT_EQ(right, 200);
}

}  // namespace
}  // namespace casemate::mcp
