#include "casemate/mcp/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "casemate/mcp/http_client_test.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::mcp {
namespace {

using namespace std::chrono_literals;

// Answers each body with itself; one that begins with "stream" with a stream that the test writes.
class Echo final : public HttpApplication {
 public:
  HttpAnswer answer(const HttpHead&, std::string_view caller, std::string body) override {
    ++answered;
    if (!body.starts_with("stream")) {
      return {.body = "\"" + std::string(caller) + body + "\""};
    }
    const auto stream =
        std::make_shared<EventStream>("s", EventStream::Keeping::unread_only, 1'000'000);
    const std::lock_guard lock(mutex_);
    stream_ = stream;
    changed_.notify_all();
    return {.stream = stream,
            .events_at_once = body.find("events") != std::string::npos,
            .resumable = true,
            .primed = body.find("primed") != std::string::npos,
            .ended = [this](bool whole) {
              const std::lock_guard ended(mutex_);
              ended_ = whole ? "whole" : "lost";
              changed_.notify_all();
            }};
  }
  std::string refusal_body(const HttpRefusal& refusal) override { return refusal.reason; }
  void tick(std::chrono::steady_clock::time_point) override {}

  std::shared_ptr<EventStream> stream() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [this] { return stream_ != nullptr; }));
    return std::exchange(stream_, nullptr);
  }
  std::string ended() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [this] { return !ended_.empty(); }));
    return std::exchange(ended_, {});
  }
  std::atomic<int> answered{0};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<EventStream> stream_;
  std::string ended_;
};

class HttpServerTest : public testing::Test {
 protected:
  HttpServer& start(HttpServerOptions options = {}) {
    server_.emplace(std::move(options), application_);
    return *server_;
  }
  TestClient client() { return TestClient(server_->port()); }
  TestClient::Answer ask(std::string_view text) {
    TestClient asking = client();
    asking.send(text);
    return asking.read_answer();
  }
  Echo application_;
  std::optional<HttpServer> server_;
};

TEST_F(HttpServerTest, RefusesToBeReachableWithoutTokens) {
  for (const char* host : {"0.0.0.0", "::"}) {
    expect_refusal<InvalidArgument>([&] { HttpServer({.host = host}, application_); },
                                    {"other machines", "bearer tokens"});
  }
  expect_refusal<InvalidArgument>([&] { HttpServer({.host = "no such host"}, application_); },
                                  "leads to no address");
  expect_refusal<InvalidArgument>([&] { HttpServer({.tls_certificate = "x"}, application_); },
                                  "certificate and its key");
  expect_refusal<InvalidArgument>(
      [&] { HttpServer({.tls_certificate = "/none", .tls_key = "/none"}, application_); },
      "cannot be used");
}

TEST_F(HttpServerTest, AnswersRequestAfterRequestOnOneConnection) {
  start();
  TestClient asking = client();
  for (const char* body : {"one", "two", "three"}) {
    ASSERT_TRUE(asking.send(post_text(body)));
    const auto answer = asking.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "\"" + std::string(body) + "\"");
  }
  EXPECT_EQ(server_->connections(), 1u);
}

TEST_F(HttpServerTest, AnswersInOrderWhatWasSentBeforeItCouldAnswer) {
  start();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream") + post_text("two") + post_text("three")));
  application_.stream()->push_last(EventStream::Kind::reply, "one");
  EXPECT_EQ(asking.read_answer().body, "one");
  EXPECT_EQ(asking.read_answer().body, "\"two\"");
  EXPECT_EQ(asking.read_answer().body, "\"three\"");
}

TEST_F(HttpServerTest, RefusesEachWrongHeadWithItsStatusAndAReason) {
  start({.max_body_bytes = 100});
  const std::string head =
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const std::vector<std::pair<int, std::string>> cases{
      {400, "nonsense\r\n\r\n"},
      {400, "POST /mcp HTTP/1.1\r\n\r\n"},
      {400, "POST /mcp HTTP/3.0\r\nHost: localhost\r\n\r\n"},
      {400, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"},
      {400, head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx"},
      {400, head + "Content-Length: -1\r\n\r\n"},
      {400, head + "Content-Length: 99999999999999999999999\r\n\r\n"},
      {400, head + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx"},
      {400, head + "Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"},
      {403, "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n"},
      {403, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n"},
      {404, "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {405, "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {406, head + "Accept: text/html\r\n\r\n"},
      {413, head + "Content-Length: 101\r\n\r\n"},
      {413,
       head + "Transfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'x') + "\r\n0\r\n\r\n"},
      {415, "POST /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {431, head + "X: " + std::string(17'000, 'x') + "\r\n\r\n"},
      {431, "POST /" + std::string(17'000, 'x')},
  };
  for (const auto& [status, text] : cases) {
    const auto answer = ask(text);
    EXPECT_EQ(answer.status, status) << text.substr(0, 200);
    EXPECT_FALSE(answer.body.empty()) << text.substr(0, 200);
  }
  EXPECT_EQ(application_.answered, 0);
  EXPECT_EQ(ask(post_text(std::string(100, 'x'))).status, 200);  // at the bound
  EXPECT_EQ(ask("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
                .body,
            "\"abc\"");
}

TEST_F(HttpServerTest, AsksForATokenBeforeItTellsAnythingElse) {
  Scratch scratch;
  const std::string token(32, 't');
  put(scratch / "tokens", token);
  start({.tokens = std::make_shared<TokenFile>(scratch / "tokens", Log())});
  auto answer = ask("GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(answer.status, 401);
  EXPECT_NE(answer.head.find("WWW-Authenticate: Bearer\r\n"), std::string::npos);
  EXPECT_EQ(ask(post_text("x", "Authorization: Bearer " + token + "x\r\n")).status, 401);
  answer = ask(post_text("x", "Authorization: Bearer " + token + "\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.find(token), std::string::npos);
}

TEST_F(HttpServerTest, SendsAStreamOfOneReplyAsJsonWithItsStatus) {
  start();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream")));
  application_.stream()->push_last(EventStream::Kind::reply, "{}", 404);
  const auto answer = asking.read_answer();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.body, "{}");
  EXPECT_NE(answer.head.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_EQ(application_.ended(), "whole");
  ASSERT_TRUE(asking.send(post_text("x")));
  EXPECT_EQ(asking.read_answer().body, "\"x\"");
}

TEST_F(HttpServerTest, SendsAStreamThatBeginsOtherwiseAsEventsWithTheirIds) {
  start();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream")));
  const auto stream = application_.stream();
  stream->push(EventStream::Kind::notification, "1");
  EXPECT_NE(asking.read_until("\r\n\r\n").find("Content-Type: text/event-stream\r\n"),
            std::string::npos);
  EXPECT_EQ(asking.read_until("data: 1\n\n\r\n"), "11\r\nid: s.1\ndata: 1\n\n\r\n");
  stream->push_last(EventStream::Kind::reply, "2", 400);
  EXPECT_EQ(asking.read_until("0\r\n\r\n"), "11\r\nid: s.2\ndata: 2\n\n\r\n0\r\n\r\n");
  EXPECT_EQ(application_.ended(), "whole");
  ASSERT_TRUE(asking.send(post_text("x")));
  EXPECT_EQ(asking.read_answer().body, "\"x\"");
}

TEST_F(HttpServerTest, SendsAnOldClientEventsUpToTheEndOfTheConnection) {
  start();
  TestClient asking = client();
  std::string text = post_text("stream events");
  text.replace(text.find("HTTP/1.1"), 8, "HTTP/1.0");
  ASSERT_TRUE(asking.send(text));
  application_.stream()->push_last(EventStream::Kind::reply, "1");
  const std::string answer = asking.read_to_end();
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\nid: s.1\ndata: 1\n\n")) << answer;
}

TEST_F(HttpServerTest, KeepsASilentStreamAliveWithComments) {
  start({.keep_alive = 20ms});
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream")));
  const auto stream = application_.stream();
  for (int count = 0; count < 3; ++count) {
    EXPECT_NE(asking.read_until(": alive\n\n\r\n").find(": alive"), std::string::npos);
  }
  stream->push_last(EventStream::Kind::reply, "1");
  EXPECT_NE(asking.read_until("0\r\n\r\n").find("data: 1\n\n"), std::string::npos);
}

TEST_F(HttpServerTest, TellsAResumableStreamsIdFirst) {
  start();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream primed")));
  asking.read_until("\r\n\r\n");
  EXPECT_NE(asking.read_until("data: \n\n").find("id: s.0\nretry: 1000\n"), std::string::npos);
}

TEST_F(HttpServerTest, AClientThatGoesEndsItsAnswerWhateverItWasDoing) {
  start();
  for (const char* body : {"stream", "stream events"}) {
    TestClient asking = client();
    ASSERT_TRUE(asking.send(post_text(body)));
    const auto stream = application_.stream();
    if (body == std::string_view("stream events")) asking.read_until("\r\n\r\n");
    asking.close();
    EXPECT_EQ(application_.ended(), "lost");
    EXPECT_FALSE(stream->has_listener());
  }
}

TEST_F(HttpServerTest, LosesPatienceWithAHeadABodyAndAnIdleConnection) {
  start({.head_patience = 30ms, .body_patience = 30ms, .idle_patience = 30ms});
  for (const std::string text : {"", "POST /mcp HT", "POST /mcp HTTP/1.1\r\nHost: localhost\r\n"}) {
    TestClient slow = client();
    ASSERT_TRUE(slow.send(text));
    EXPECT_EQ(slow.read_to_end(), "") << text;
  }
  TestClient slow = client();
  ASSERT_TRUE(slow.send(post_text("whole").substr(0, post_text("whole").size() - 1)));
  EXPECT_EQ(slow.read_to_end(), "");
  EXPECT_EQ(application_.answered, 0);
}

TEST_F(HttpServerTest, AClientThatDoesNotReadIsGivenUpAndLittleIsHeldForHim) {
  start({.write_patience = 50ms});
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream events")));
  const auto stream = application_.stream();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) stream->push(EventStream::Kind::notification, std::string(10'000, 'x'));
  });
  EXPECT_EQ(application_.ended(), "lost");
  stop = true;
  writer.join();
  EXPECT_LE(stream->held_bytes(), 1'000'000u);
}

TEST_F(HttpServerTest, TakesNoMoreConnectionsThanItsBoundAndSaysSo) {
  start({.max_connections = 2});
  TestClient one = client();
  TestClient two = client();
  std::vector<std::shared_ptr<EventStream>> streams;
  for (TestClient* each : {&one, &two}) {
    ASSERT_TRUE(each->send(post_text("stream")));
    streams.push_back(application_.stream());
  }
  TestClient three = client();
  EXPECT_EQ(three.read_answer().status, 429);
  for (const auto& stream : streams) stream->push_last(EventStream::Kind::reply, "1");
  EXPECT_EQ(one.read_answer().status, 200);
  EXPECT_EQ(two.read_answer().status, 200);
}

TEST_F(HttpServerTest, WhoHasOwedARequestForLongestMakesRoomForTheNext) {
  start({.max_connections = 2});
  TestClient silent = client();
  ASSERT_TRUE(silent.send(post_text("x")));
  EXPECT_EQ(silent.read_answer().status, 200);
  TestClient slow = client();
  ASSERT_TRUE(slow.send(post_text("x")));
  EXPECT_EQ(slow.read_answer().status, 200);
  ASSERT_TRUE(slow.send("POST /mcp HTTP"));
  TestClient next = client();
  ASSERT_TRUE(next.send(post_text("x")));
  EXPECT_EQ(next.read_answer().status, 200);
  EXPECT_EQ(silent.read_to_end(), "");
  ASSERT_TRUE(slow.send("/1.1\r\nHost: evil.example\r\n\r\n"));
  EXPECT_EQ(slow.read_answer().status, 403);
}

// The head and the beginning of a body of that many bytes.
std::string begun_body(std::size_t bytes, std::size_t sent, std::string_view more = {}) {
  const std::string text = post_text(std::string(bytes, 'x'), more);
  return text.substr(0, text.size() - bytes + sent);
}

constexpr std::string_view kChunkedHead =
    "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";

TEST_F(HttpServerTest, BodiesThatAreOnlyAnnouncedTakeNoRoomFromOthers) {
  start({.max_body_bytes = 1000, .max_receiving_bytes = 1500});
  std::vector<TestClient> announcing;
  for (int count = 0; count < 8; ++count) {
    announcing.push_back(client());
    ASSERT_TRUE(announcing.back().send(kChunkedHead));
    announcing.back().read_until("100 Continue\r\n\r\n");
  }
  EXPECT_EQ(ask(post_text(std::string(1000, 'x'))).status, 200);
}

TEST_F(HttpServerTest, TheBodyThatHasBeenComingForLongestEndsWhereAllAreTooMuch) {
  start({.max_body_bytes = 1000, .max_receiving_bytes = 1500});
  TestClient first = client();
  ASSERT_TRUE(first.send(kChunkedHead));
  first.read_until("100 Continue\r\n\r\n");
  ASSERT_TRUE(first.send("320\r\n" + std::string(800, 'x') + "\r\n"));
  TestClient second = client();
  ASSERT_TRUE(second.send(kChunkedHead));
  second.read_until("100 Continue\r\n\r\n");
  ASSERT_TRUE(second.send("320\r\n" + std::string(800, 'y') + "\r\n"));
  EXPECT_EQ(first.read_to_end(), "");
  ASSERT_TRUE(second.send("0\r\n\r\n"));
  EXPECT_EQ(second.read_answer().status, 200);
}

// Two callers with a token each.
class HttpServerOfTwoTest : public HttpServerTest {
 protected:
  HttpServerOfTwoTest() {
    put(scratch_ / "tokens", std::string(32, '1') + "\n" + std::string(32, '2'));
  }
  HttpServerOptions options() {
    return {.tokens = std::make_shared<TokenFile>(scratch_ / "tokens", Log())};
  }
  static std::string as(char who) {
    return "Authorization: Bearer " + std::string(32, who) + "\r\n";
  }
  Scratch scratch_;
};

TEST_F(HttpServerOfTwoTest, OneCallersRequestsLeavePlacesToTheOther) {
  HttpServerOptions given = options();
  given.max_connections = 12;
  start(std::move(given));
  std::vector<TestClient> held;
  for (int count = 0; count < 9; ++count) {
    held.push_back(client());
    ASSERT_TRUE(held.back().send(post_text("stream", as('1'))));
    application_.stream();
  }
  EXPECT_EQ(ask(post_text("x", as('1'))).status, 429);
  for (int count = 0; count < 2; ++count) {
    held.push_back(client());
    ASSERT_TRUE(held.back().send(post_text("stream", as('2'))));
    application_.stream();
  }
}

TEST_F(HttpServerOfTwoTest, OneCallersBodiesPushOutHisOwn) {
  HttpServerOptions given = options();
  given.max_body_bytes = 1000;
  given.max_receiving_bytes = 2000;
  start(std::move(given));
  const std::string expect = "Expect: 100-continue\r\n";
  std::vector<TestClient> bodies;
  for (const char who : {'2', '1', '1'}) {
    bodies.push_back(client());
    const std::string text = begun_body(1000, 800, as(who) + expect);
    ASSERT_TRUE(bodies.back().send(text.substr(0, text.size() - 800)));
    bodies.back().read_until("100 Continue\r\n\r\n");
    ASSERT_TRUE(bodies.back().send(std::string(800, 'x')));
  }
  EXPECT_EQ(bodies[1].read_to_end(), "") << "his first";
  for (TestClient* each : {&bodies[0], &bodies[2]}) {
    ASSERT_TRUE(each->send(std::string(200, 'x')));
    EXPECT_EQ(each->read_answer().status, 200);
  }
}

TEST_F(HttpServerTest, ABodyThatDoesNotComeMakesRoomForTheNextConnection) {
  start({.max_connections = 2});
  std::vector<TestClient> slow;
  for (int count = 0; count < 2; ++count) {
    slow.push_back(client());
    ASSERT_TRUE(slow.back().send(begun_body(1000, 1, "Expect: 100-continue\r\n")));
    slow.back().read_until("100 Continue\r\n\r\n");
  }
  EXPECT_EQ(ask(post_text("x")).status, 200);
  EXPECT_EQ(slow[0].read_to_end(), "");
}

TEST_F(HttpServerTest, AClientThatGoesIsNoticedBehindWhatItSentEarly) {
  start();
  for (const std::size_t early : {std::size_t{1}, std::size_t{20'000}}) {
    TestClient asking = client();
    ASSERT_TRUE(asking.send(post_text("stream") + std::string(early, 'x')));
    const auto stream = application_.stream();
    asking.close();
    EXPECT_EQ(application_.ended(), "lost") << early;
  }
}

TEST_F(HttpServerTest, AClientThatSendsOnAndOnBeforeItsAnswerIsClosed) {
  start();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream")));
  const auto stream = application_.stream();
  asking.send(std::string(100'000, 'x'));
  EXPECT_EQ(application_.ended(), "lost");
}

TEST_F(HttpServerTest, AnAnswerIsReadThoughTheRequestWasRefusedBeforeItsEnd) {
  start({.max_body_bytes = 10});
  TestClient asking = client();
  const std::string body(500'000, 'x');
  asking.send(post_text(body));
  EXPECT_EQ(asking.read_answer().status, 413);
  EXPECT_EQ(asking.read_to_end(), "");
}

TEST_F(HttpServerTest, LetsAnAnswerThatWasMadeReachItsClientWhenItStops) {
  start();
  TestClient idle = client();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream")));
  const auto stream = application_.stream();
  stream->push_last(EventStream::Kind::reply, "1");
  server_->stop(20s);
  EXPECT_EQ(asking.read_answer().body, "1");
  EXPECT_EQ(asking.read_to_end(), "");
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HttpServerTest, StopsThoughAnAnswerIsNeverMade) {
  start();
  TestClient asking = client();
  ASSERT_TRUE(asking.send(post_text("stream")));
  const auto stream = application_.stream();
  server_->stop(1ms);
  EXPECT_EQ(application_.ended(), "lost");
}

}  // namespace
}  // namespace casemate::mcp
