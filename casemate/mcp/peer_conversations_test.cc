// Conversations, and what landed in them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <string>

#include "casemate/core/errors.h"
#include "casemate/mcp/served_test.h"

namespace casemate::mcp {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Peer, GivesEachStatelessCallAConversationOfItsOwnAndASessionOne) {
  std::mutex mutex;
  std::vector<std::string> ended;
  ServerOptions options = test_options();
  options.conversations.end = [&](std::string_view thread_id) {
    const std::lock_guard lock(mutex);
    ended.emplace_back(thread_id);
  };
  const Server server(std::move(options));
  const auto peer = connect(server, "2025-11-25");
  const std::string session = first_text(answer(*peer, call("1", "where", "{}")));
  EXPECT_EQ(first_text(answer(*peer, call("1", "where", "{}"))), session);
  const std::string where = stateless("tools/call", R"(,"name":"where")");
  const std::string one = first_text(answer(*peer, where));
  const std::string two = first_text(answer(*peer, where));
  EXPECT_NE(one, session);
  EXPECT_NE(one, two);
  peer->close();
  server.stop(std::chrono::seconds(30));
  EXPECT_THAT(ended, testing::UnorderedElementsAre(one, two, session));
}

TEST(Peer, GoesOnInAConversationByItsHandleForItsOwnerOnly) {
  ServerOptions options = test_options();
  options.conversations.handles = Handles::yes;
  options.conversations.max_handles = 2;
  const Server server(std::move(options));
  const auto peer = server.connect({"me", true});
  const auto where = [](Peer& who, std::string_view handle) {
    const std::string arguments =
        handle.empty() ? "{}" : R"({"conversation":")" + std::string(handle) + R"("})";
    return answer(who, stateless("tools/call", R"(,"name":"where","arguments":)" + arguments));
  };
  const json::object first = where(*peer, "");
  const std::string handle(
      first.at("result").at("structuredContent").at("conversation").as_string());
  EXPECT_GE(handle.size(), 32U);
  EXPECT_NE(first_text(first), "mcp-" + handle) << "the key is no secret, the handle is";
  EXPECT_THAT(serialise_json(first), HasSubstr("conversation: " + handle));
  EXPECT_EQ(first_text(where(*peer, handle)), first_text(first));
  const auto other = server.connect({"another", true});
  for (const json::object& refused : {where(*other, handle), where(*peer, std::string(32, '0'))}) {
    EXPECT_TRUE(refused.at("result").at("isError").as_bool());
    EXPECT_THAT(first_text(refused), HasSubstr("'conversation'"));
  }
  where(*peer, "");
  EXPECT_THAT(first_text(where(*peer, "")), HasSubstr("too many conversations"));
  const json::object list = answer(*peer, stateless("tools/list"));
  EXPECT_TRUE(list.at("result")
                  .at("tools")
                  .at(0)
                  .at("inputSchema")
                  .at("properties")
                  .as_object()
                  .contains("conversation"));
}

TEST(Peer, ForgetsAConversationWhoseHandleNobodyWillKnow) {
  ServerOptions options = test_options();
  options.conversations.handles = Handles::yes;
  options.conversations.max_handles = 1;
  std::latch over(2);
  options.conversations.end = [&over](std::string_view) { over.count_down(); };
  const Server server(std::move(options));
  const auto peer = server.connect({"me", true});
  answer(*peer, stateless("tools/call", R"(,"name":"fail")"));
  const auto outlet = std::make_shared<RecordingOutlet>();
  std::string waiting = stateless("tools/call", R"(,"name":"wait")");
  waiting.replace(waiting.find(R"("_meta":{)"), 9, R"("_meta":{"progressToken":1,)");
  peer->receive(read_message(waiting), outlet);
  outlet->first(1);
  sent_for(*peer,
           R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}})");
  outlet->all();
  over.wait();
  EXPECT_EQ(server.stop(std::chrono::seconds(30)), 0U);
}

TEST(Peer, ForgetsAConversationThatNobodyUsed) {
  ServerOptions options = test_options();
  options.conversations.handles = Handles::yes;
  options.conversations.idle = std::chrono::milliseconds(1);
  std::latch over(1);
  options.conversations.end = [&over](std::string_view) { over.count_down(); };
  const Server server(std::move(options));
  const auto peer = server.connect({"me", true});
  const json::object first = answer(*peer, stateless("tools/call", R"(,"name":"where")"));
  over.wait();
  const std::string handle(
      first.at("result").at("structuredContent").at("conversation").as_string());
  const json::object gone =
      answer(*peer, stateless("tools/call", R"(,"name":"where","arguments":{"conversation":")" +
                                                handle + R"("})"));
  EXPECT_TRUE(gone.at("result").at("isError").as_bool());
}

TEST(Peer, ReadsAnArtifactByItsAddressForItsOwnerOnly) {
  const Server server(test_options());
  const auto peer = server.connect({"me", true});
  answer(*peer, initialize("2025-11-25"));
  const auto land = [&peer](std::string_view name) {
    const json::object reply =
        answer(*peer, call("1", "land", R"({"name":")" + std::string(name) + R"("})"));
    const json::value& link = reply.at("result").at("content").at(1);
    EXPECT_EQ(link.at("uri"),
              reply.at("result").at("structuredContent").at("artifacts").at(0).at("uri"));
    EXPECT_THAT(serialise_json(reply), Not(HasSubstr("/host/")));
    return std::string(link.at("uri").as_string());
  };
  const auto read = [](Peer& who, std::string_view uri) {
    return answer(who, R"({"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":")" +
                           std::string(uri) + R"("}})");
  };
  const std::string uri = land("a b/\xc3\xa4.CSV");
  EXPECT_THAT(uri, testing::MatchesRegex("casemate://artifact/[0-9a-f]+/a%20b/%C3%A4.CSV"));
  const json::object content = read(*peer, uri).at("result").at("contents").at(0).as_object();
  EXPECT_EQ(content.at("text"), "hello");
  EXPECT_EQ(content.at("mimeType"), "text/csv");
  EXPECT_EQ(read(*peer, land("x.png")).at("result").at("contents").at(0).at("blob"), "aGVsbG8=");
  EXPECT_EQ(read(*peer, land("bytes.txt")).at("result").at("contents").at(0).at("blob"), "//4=");
  EXPECT_FALSE(read(*peer, land("noext"))
                   .at("result")
                   .at("contents")
                   .at(0)
                   .as_object()
                   .contains("mimeType"));
  EXPECT_EQ(error_code(read(*peer, land("gone.txt"))), -32002);
  const auto other = server.connect({"another", true});
  answer(*other, initialize("2025-11-25"));
  for (const std::string& wrong :
       {uri + "x", uri.substr(0, uri.size() - 1), std::string("file:///etc/passwd"),
        std::string("casemate://artifact/../../etc/passwd")}) {
    EXPECT_EQ(error_code(read(*peer, wrong)), -32002) << wrong;
  }
  EXPECT_EQ(error_code(read(*other, uri)), -32002);
  EXPECT_EQ(error_code(answer(*peer, stateless("resources/read", R"(,"uri":"x")"))), -32602);
}

TEST(Peer, ListsWhatLandedForTheCallerInPages) {
  const Server server(test_options());
  const auto peer = server.connect({"me", true});
  answer(*peer, initialize("2025-11-25"));
  for (int at = 0; at < 101; ++at) answer(*peer, call("1", "land", R"({"name":"a.csv"})"));
  const auto list = [](Peer& who, const std::string& params) {
    return answer(who,
                  R"({"jsonrpc":"2.0","id":1,"method":"resources/list","params":)" + params + "}");
  };
  const json::object first = list(*peer, "{}").at("result").as_object();
  EXPECT_EQ(first.at("resources").as_array().size(), 100U);
  const std::string cursor(first.at("nextCursor").as_string());
  const json::object second =
      list(*peer, R"({"cursor":")" + cursor + R"("})").at("result").as_object();
  EXPECT_EQ(second.at("resources").as_array().size(), 1U);
  EXPECT_FALSE(second.contains("nextCursor"));
  for (const char* wrong : {R"({"cursor":"x"})", R"({"cursor":5})", R"({"cursor":"999999"})"}) {
    EXPECT_EQ(error_code(list(*peer, wrong)), -32602);
  }
  const auto other = server.connect({"another", true});
  answer(*other, initialize("2025-11-25"));
  EXPECT_TRUE(list(*other, "{}").at("result").at("resources").as_array().empty());
  // Many may be nobody in particular: each is listed its own only.
  const auto anybody = server.connect({});
  answer(*anybody, initialize("2025-11-25"));
  answer(*anybody, call("1", "land", R"({"name":"a.csv"})"));
  const auto somebody = server.connect({});
  answer(*somebody, initialize("2025-11-25"));
  EXPECT_EQ(list(*anybody, "{}").at("result").at("resources").as_array().size(), 1U);
  EXPECT_TRUE(list(*somebody, "{}").at("result").at("resources").as_array().empty());
}

TEST(Peer, EndsAConversationThoughEveryThreadIsTaken) {
  std::latch ended(1);
  std::atomic<int> ends = 0;
  ServerOptions options = test_options();
  options.calls = {.max_running = 1};
  options.conversations.end = [&](std::string_view) {
    if (++ends == 1) ended.count_down();
  };
  const Server server(std::move(options));
  const auto gone = connect(server, "2025-11-25");
  answer(*gone, call("1", "where", "{}"));
  const auto busy = connect(server, "2025-11-25");
  const auto running = std::make_shared<RecordingOutlet>();
  busy->receive(read_message(call("1", "wait", "{}", R"({"progressToken":1})")), running);
  running->first(1);
  gone->close();
  ended.wait();
  busy->close();
  EXPECT_EQ(server.stop(std::chrono::seconds(30)), 0U);
}

}  // namespace
}  // namespace casemate::mcp
