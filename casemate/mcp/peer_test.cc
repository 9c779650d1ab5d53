#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <string>

#include "casemate/core/errors.h"
#include "casemate/mcp/served_test.h"

namespace casemate::mcp {
namespace {

using testing::HasSubstr;
using testing::Not;

std::shared_ptr<Peer> connect(const Server& server, std::string_view revision = "") {
  auto peer = server.connect({"test", true});
  if (!revision.empty()) answer(*peer, initialize(revision));
  return peer;
}

std::int64_t error_code(const json::object& reply) {
  return reply.contains("error") ? reply.at("error").at("code").as_int64() : 0;
}

std::string first_text(const json::object& reply) {
  return std::string(reply.at("result").at("content").at(0).at("text").as_string());
}

// MCP-04
TEST(Peer, AgreesOnARevisionBothKnowOrOnItsNewest) {
  const Server server(test_options());
  const auto agreed = [&server](std::string_view params) {
    const auto peer = connect(server);
    const json::object reply =
        answer(*peer, R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":)" +
                          std::string(params) + "}");
    return std::string(reply.at("result").at("protocolVersion").as_string());
  };
  for (const char* known : {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}) {
    EXPECT_EQ(agreed(R"({"protocolVersion":")" + std::string(known) + R"("})"), known);
  }
  for (const char* other :
       {R"({"protocolVersion":"2099-01-01"})", R"({"protocolVersion":"banana"})",
        R"({"protocolVersion":5})", "{}", R"({"protocolVersion":"2026-07-28"})"}) {
    EXPECT_EQ(agreed(other), "2025-11-25") << other;
  }
}

// MCP-10
TEST(Peer, AnswersPingAtAnyTimeAndNoUnknownNotification) {
  const Server server(test_options());
  const auto peer = connect(server);
  const std::string ping = R"({"jsonrpc":"2.0","id":"p","method":"ping"})";
  EXPECT_TRUE(answer(*peer, ping).at("result").as_object().empty());
  EXPECT_TRUE(sent_for(*peer, R"({"jsonrpc":"2.0","method":"notifications/foo"})").empty());
  EXPECT_TRUE(sent_for(*peer, R"({"jsonrpc":"2.0","method":"tools/call"})").empty());
  EXPECT_TRUE(sent_for(*peer, R"({"jsonrpc":"2.0","id":1,"result":{}})").empty());
  EXPECT_EQ(error_code(answer(*peer, R"({"jsonrpc":"2.0","id":1,"method":"foo"})")), -32601);
  answer(*peer, initialize("2025-11-25"));
  const auto running = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("1", "wait", "{}", R"({"progressToken":0})")), running);
  running->first(1);
  EXPECT_TRUE(answer(*peer, ping).contains("result"));
}

// MCP-16
TEST(Peer, SaysWhatIsWrongWithArgumentsToTheModel) {
  const Server server(test_options());
  const auto peer = connect(server, "2025-11-25");
  for (const char* arguments : {"null", "[]", R"("x")", R"({"text":5})",
                                R"({"text":"a","scope":"b"})", R"({"text":"a","thread_id":"b"})"}) {
    const json::object reply = answer(*peer, call("1", "echo", arguments));
    EXPECT_TRUE(reply.at("result").at("isError").as_bool()) << arguments;
    EXPECT_THAT(first_text(reply), testing::ContainsRegex("argument|parameter")) << arguments;
  }
  EXPECT_THAT(first_text(answer(*peer, call("1", "echo", R"({"text":5})"))), HasSubstr("'text'"));
  EXPECT_EQ(error_code(answer(*peer, call("1", "unknown", "{}"))), -32602);
  EXPECT_EQ(error_code(answer(
                *peer, R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}})")),
            -32602);
  EXPECT_EQ(
      error_code(answer(*peer, R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]})")),
      -32602);
}

TEST(Peer, KeepsWhatAToolThrewFromTheClient) {
  const Server server(test_options());
  const auto peer = connect(server, "2025-11-25");
  const json::object reply = answer(*peer, call("1", "fail", "{}"));
  EXPECT_TRUE(reply.at("result").at("isError").as_bool());
  EXPECT_THAT(serialise_json(reply), Not(HasSubstr("secret")));
}

// MCP-06
TEST(Peer, StopsACancelledCallAndDoesNotAnswerIt) {
  const Server server(test_options());
  const auto peer = connect(server, "2025-11-25");
  const auto outlet = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("5", "wait", "{}", R"({"progressToken":"t"})")), outlet);
  EXPECT_EQ(outlet->first(1).size(), 1U);
  const auto cancel = [&peer](std::string_view id) {
    EXPECT_TRUE(sent_for(*peer, R"({"jsonrpc":"2.0","method":"notifications/cancelled",)"
                                R"("params":{"requestId":)" +
                                    std::string(id) + "}}")
                    .empty());
  };
  for (const char* other : {R"("5")", "6", R"("init")", "null", "{}", "5.0"}) cancel(other);
  EXPECT_EQ(peer->in_flight(), 1U);
  cancel("5");
  EXPECT_EQ(peer->in_flight(), 0U);
  EXPECT_EQ(outlet->all().size(), 1U) << "the progress from before, and no answer";
  cancel("5");
  EXPECT_EQ(first_text(answer(*peer, call("5", "echo", R"({"text":"again"})"))), "again");
}

TEST(Peer, RefusesAnIdThatIsInFlight) {
  const Server server(test_options());
  const auto peer = connect(server, "2025-11-25");
  const auto outlet = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("5", "wait", "{}", R"({"progressToken":"t"})")), outlet);
  outlet->first(1);
  EXPECT_EQ(error_code(answer(*peer, call("5", "echo", R"({"text":"a"})"))), -32600);
  EXPECT_EQ(error_code(answer(*peer, R"({"jsonrpc":"2.0","id":5,"method":"ping"})")), -32600);
  EXPECT_EQ(first_text(answer(*peer, call(R"("5")", "echo", R"({"text":"a"})"))), "a");
}

// MCP-14
TEST(Peer, SendsProgressWithTheTokenItWasGivenAndNoneBehindTheResult) {
  const Server server(test_options());
  const auto peer = connect(server, "2025-06-18");
  for (const char* token : {"1", "0", R"("a")", R"("")"}) {
    const auto sent = sent_for(*peer, call("1", "steps", R"({"count":5000})",
                                           R"({"progressToken":)" + std::string(token) + "}"));
    EXPECT_EQ(sent.back().kind, Outgoing::Kind::reply);
    double last = 0;
    for (std::size_t at = 0; at + 1 < sent.size(); ++at) {
      EXPECT_EQ(sent[at].kind, Outgoing::Kind::notification);
      const json::value message = parse_json(sent[at].text);
      EXPECT_EQ(serialise_json(message.at("params").at("progressToken")), token);
      EXPECT_GT(message.at("params").at("progress").to_number<double>(), last);
      last = message.at("params").at("progress").to_number<double>();
    }
    EXPECT_GE(sent.size(), 5000U);
  }
  EXPECT_EQ(sent_for(*peer, call("1", "steps", R"({"count":50})")).size(), 1U);
  EXPECT_EQ(error_code(answer(*peer, call("1", "echo", "{}", R"({"progressToken":{}})"))), -32602);
}

TEST(Peer, ServesBatchesWhereTheRevisionHasThem) {
  const Server server(test_options());
  const std::string batch = "[" + call("1", "echo", R"({"text":"a"})") +
                            R"(,{"jsonrpc":"2.0","method":"notifications/foo"},5,)"
                            R"({"jsonrpc":"2.0","id":2,"method":"ping"}])";
  for (const char* revision : {"2024-11-05", "2025-03-26"}) {
    const auto sent = sent_for(*connect(server, revision), batch);
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(parse_json(sent[0].text).as_array().size(), 3U) << sent[0].text;
  }
  for (const char* revision : {"", "2025-06-18", "2025-11-25"}) {
    EXPECT_EQ(error_code(answer(*connect(server, revision), batch)), -32600) << revision;
  }
  const auto peer = connect(server, "2025-03-26");
  EXPECT_TRUE(sent_for(*peer, R"([{"jsonrpc":"2.0","method":"notifications/foo"}])").empty());
  EXPECT_EQ(error_code(answer(*peer, "[]")), -32600);
  const auto sent = sent_for(*peer, "[" + initialize("2025-11-25") + "]");
  EXPECT_THAT(sent.at(0).text, HasSubstr("-32600"));
}

TEST(Peer, SendsWhatTheRevisionKnows) {
  const Server server(test_options());
  for (const char* revision : {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}) {
    const auto peer = connect(server, revision);
    const bool structured = std::string_view(revision) >= "2025-06-18";
    const json::object result =
        answer(*peer, call("1", "land", R"({"name":"a.csv"})")).at("result").as_object();
    EXPECT_EQ(result.contains("structuredContent"), structured) << revision;
    EXPECT_EQ(result.at("content").at(1).at("type"), structured ? "resource_link" : "text");
    const json::object list =
        answer(*peer, R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})").at("result").as_object();
    EXPECT_EQ(list.at("tools").at(0).as_object().contains("annotations"),
              std::string_view(revision) >= "2025-03-26");
    EXPECT_FALSE(list.contains("resultType"));
    EXPECT_EQ(list.at("tools").as_array().size(), 6U);
    EXPECT_EQ(list.at("tools").at(0).at("name"), "echo");
  }
}

TEST(Peer, ServesNothingButTheHandshakeBeforeIt) {
  const Server server(test_options());
  const auto peer = connect(server);
  for (const char* method : {"tools/list", "tools/call", "resources/list", "resources/read"}) {
    EXPECT_EQ(error_code(answer(
                  *peer, R"({"jsonrpc":"2.0","id":1,"method":")" + std::string(method) + R"("})")),
              -32602)
        << method;
  }
}

TEST(Peer, ServesAStatelessRequestByItself) {
  const Server server(test_options());
  const auto peer = connect(server);
  const json::object found = answer(*peer, stateless("server/discover"));
  EXPECT_EQ(found.at("result").at("supportedVersions").at(0), "2026-07-28");
  EXPECT_EQ(found.at("result").at("resultType"), "complete");
  EXPECT_EQ(found.at("result").at("_meta").at("io.modelcontextprotocol/serverInfo").at("name"),
            "test");
  const json::object list = answer(*peer, stateless("tools/list")).at("result").as_object();
  EXPECT_EQ(list.at("cacheScope"), "public");
  EXPECT_GT(list.at("ttlMs").as_int64(), 0);
  const json::object ran =
      answer(*peer, stateless("tools/call", R"(,"name":"echo","arguments":{"text":"hi"})"));
  EXPECT_EQ(first_text(ran), "hi");
  EXPECT_EQ(ran.at("result").at("resultType"), "complete");
  EXPECT_FALSE(peer->revision()) << "nothing is remembered";
  for (const char* method : {"ping", "logging/setLevel", "initialize", "foo"}) {
    const auto sent = sent_for(*peer, stateless(method));
    EXPECT_THAT(sent.at(0).text, HasSubstr("-32601")) << method;
    EXPECT_EQ(sent.at(0).http_status, 404);
  }
}

TEST(Peer, RefusesAStatelessRequestThatDoesNotSayWhatItIs) {
  const Server server(test_options());
  const auto peer = connect(server);
  const auto with_meta = [&](const std::string& meta) {
    return sent_for(*peer, R"({"jsonrpc":"2.0","id":1,"method":"server/discover","params":{)" +
                               (meta.empty() ? meta : R"("_meta":)" + meta) + "}}")
        .at(0);
  };
  for (const char* meta : {"", "5", "{}", R"({"io.modelcontextprotocol/protocolVersion":5})",
                           R"({"io.modelcontextprotocol/protocolVersion":"2026-07-28"})",
                           R"({"io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
                           R"("io.modelcontextprotocol/clientCapabilities":5})",
                           R"({"io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
                           R"("io.modelcontextprotocol/clientCapabilities":{},)"
                           R"("io.modelcontextprotocol/logLevel":"loud"})"}) {
    const Outgoing sent = with_meta(meta);
    EXPECT_EQ(error_code(parse_json(sent.text).as_object()), -32602) << meta;
    EXPECT_EQ(sent.http_status, 400);
  }
  const Outgoing unknown = with_meta(R"({"io.modelcontextprotocol/protocolVersion":"2099-01-01"})");
  const json::value error = parse_json(unknown.text).at("error");
  EXPECT_EQ(error.at("code"), -32022);
  EXPECT_EQ(error.at("data").at("requested"), "2099-01-01");
  EXPECT_EQ(error.at("data").at("supported").at(0), "2026-07-28");
  EXPECT_EQ(unknown.http_status, 400);
}

TEST(Peer, HoldsHeadersAgainstTheBody) {
  const Server server(test_options());
  const auto peer = connect(server);
  const std::string text = stateless("tools/call", R"(,"name":"echo","arguments":{"text":"hi"})");
  const Headers good = {
      {"mcp-protocol-version", "2026-07-28"}, {"mcp-method", "tools/call"}, {"mcp-name", "echo"}};
  EXPECT_EQ(first_text(answer(*peer, text, &good)), "hi");
  Headers encoded = good;
  encoded["mcp-name"] = "=?base64?ZWNobw==?=";
  EXPECT_EQ(first_text(answer(*peer, text, &encoded)), "hi");
  for (const auto& [name, value] : good) {
    Headers missing = good;
    missing.erase(name);
    Headers other = good;
    other[name] = "other";
    Headers invalid = good;
    invalid[name] = value + "\x01";
    for (const Headers& headers : {missing, other, invalid}) {
      const auto sent = sent_for(*peer, text, &headers);
      EXPECT_EQ(error_code(parse_json(sent.at(0).text).as_object()), -32020) << name;
      EXPECT_EQ(sent.at(0).http_status, 400);
    }
  }
  Headers broken = good;
  broken["mcp-name"] = "=?base64?ZWNo?=x?=";
  EXPECT_EQ(error_code(answer(*peer, text, &broken)), -32020);
}

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

TEST(Peer, AsksForApprovalWhereAToolWantsIt) {
  const auto served = [](Approver approve) {
    ServerOptions options;
    options.tools = {{make_tool(
        {.name = "danger",
         .approval_mode = ApprovalMode::always_require,
         .run = [](const json::object&, const ToolCall&) { return ToolResult{.text = "ran"}; }})}};
    options.approve = std::move(approve);
    return options;
  };
  std::vector<std::string> lines;
  ServerOptions without = served({});
  without.log = [&lines](LogLevel, std::string_view text) { lines.emplace_back(text); };
  const Server nobody(std::move(without));
  EXPECT_TRUE(nobody.tool_names().empty());
  EXPECT_THAT(lines, testing::Contains(HasSubstr("'danger' is not served")));
  EXPECT_EQ(error_code(answer(*connect(nobody, "2025-11-25"), call("1", "danger", "{}"))), -32602);

  const Server yes(served([](const ApprovalRequest& request, const std::stop_token&) {
    return request.tool == "danger" && request.arguments == "{}" && request.caller == "test";
  }));
  EXPECT_EQ(first_text(answer(*connect(yes, "2025-11-25"), call("1", "danger", "{}"))), "ran");
  const Server no(served([](const ApprovalRequest&, const std::stop_token&) { return false; }));
  const Server broken(served([](const ApprovalRequest&, const std::stop_token&) -> bool {
    throw std::runtime_error("nobody is there");
  }));
  for (const Server* server : {&no, &broken}) {
    const json::object reply = answer(*connect(*server, "2025-11-25"), call("1", "danger", "{}"));
    EXPECT_TRUE(reply.at("result").at("isError").as_bool());
    EXPECT_THAT(first_text(reply), HasSubstr("not approved"));
  }
}

TEST(Peer, SendsLogMessagesWhereTheClientAskedForThem) {
  const Server server(test_options());
  const auto peer = connect(server, "2025-11-25");
  const auto set = [&peer](std::string_view level) {
    return answer(*peer,
                  R"({"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":)" +
                      std::string(level) + "}}");
  };
  const std::string one_step = call("1", "steps", R"({"count":1})");
  EXPECT_EQ(sent_for(*peer, one_step).size(), 1U);
  EXPECT_TRUE(set(R"("info")").at("result").as_object().empty());
  const auto sent = sent_for(*peer, one_step);
  EXPECT_EQ(sent.size(), 3U);
  EXPECT_THAT(sent[0].text, HasSubstr(R"("method":"notifications/message")"));
  set(R"("warning")");
  EXPECT_EQ(sent_for(*peer, one_step).size(), 1U);
  EXPECT_EQ(sent_for(*peer, call("1", "fail", "{}")).size(), 2U);
  for (const char* wrong : {R"("loud")", "5"}) EXPECT_EQ(error_code(set(wrong)), -32602);
  // A stateless request asks for itself.
  EXPECT_EQ(
      sent_for(*peer, stateless("tools/call", R"(,"name":"steps","arguments":{"count":1})")).size(),
      1U);
}

TEST(Peer, StopsEverythingWhenItsClientHasGone) {
  const Server server(test_options());
  const auto peer = connect(server, "2025-11-25");
  const auto outlet = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("1", "wait", "{}", R"({"progressToken":1})")), outlet);
  outlet->first(1);
  peer->close();
  EXPECT_EQ(outlet->all().size(), 1U);
  EXPECT_TRUE(sent_for(*peer, R"({"jsonrpc":"2.0","id":1,"method":"ping"})").empty());
  EXPECT_EQ(server.stop(std::chrono::seconds(30)), 0U);
  EXPECT_EQ(server.in_flight(), 0U);
}

// MCP-18
TEST(Peer, RefusesWhatIsMoreThanMayWait) {
  ServerOptions options = test_options();
  options.calls = {.max_running = 1, .max_waiting = 1};
  const Server server(std::move(options));
  const auto peer = connect(server, "2025-11-25");
  const auto running = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("1", "wait", "{}", R"({"progressToken":1})")), running);
  running->first(1);
  const auto waiting = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("2", "echo", R"({"text":"a"})")), waiting);
  const auto refused = sent_for(*peer, call("3", "echo", R"({"text":"a"})"));
  EXPECT_THAT(refused.at(0).text, HasSubstr("-32603"));
  EXPECT_EQ(refused.at(0).http_status, 429);
  sent_for(*peer,
           R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}})");
  EXPECT_EQ(waiting->all().size(), 1U) << "its turn came";
}

TEST(Server, RefusesNamesThatAreNoToolsOrThereTwice) {
  const auto named = [](std::vector<std::string> names) {
    ServerOptions options;
    for (std::string& name : names) {
      options.tools.push_back(
          {make_tool({.name = std::move(name),
                      .run = [](const json::object&, const ToolCall&) { return ToolResult{}; }})});
    }
    return options;
  };
  EXPECT_NO_THROW(Server(named({"a", "b", std::string(128, 'x')})));
  EXPECT_THROW(Server(named({"a", "a"})), InvalidArgument);
  EXPECT_THROW(Server(named({""})), InvalidArgument);
  EXPECT_THROW(Server(named({"a b"})), InvalidArgument);
  EXPECT_THROW(Server(named({std::string(129, 'x')})), InvalidArgument);
}

}  // namespace
}  // namespace casemate::mcp
