#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "casemate/core/errors.h"
#include "casemate/mcp/served_test.h"

namespace casemate::mcp {
namespace {

using testing::HasSubstr;
using testing::Not;

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
  without.ask_clients = AskClients::no;
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

TEST(Peer, CancelsWhatAnExchangeStartedAndNothingThatHasItsIdSince) {
  const Server server(test_options());
  const auto peer = connect(server, "2025-03-26");
  const std::string waiting = call("5", "wait", "{}", R"({"progressToken":1})");
  const auto first = std::make_shared<RecordingOutlet>();
  const Unanswered batch = peer->receive(
      read_message("[" + waiting + "," + call("6", "wait", "{}", R"({"progressToken":1})") + "]"),
      first);
  first->first(2);
  sent_for(*peer,
           R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}})");
  const auto second = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(waiting), second);
  second->first(1);
  EXPECT_EQ(peer->in_flight(), 2U);
  peer->cancel(batch);
  first->all();
  EXPECT_EQ(peer->in_flight(), 1U) << "the later one goes on";
  peer->cancel(batch);
  peer->cancel(Unanswered());
  EXPECT_EQ(peer->in_flight(), 1U);
}

TEST(Peer, ABatchBelongsToItsSessionWhateverAPartSaysOfItself) {
  const Server server(test_options());
  for (const char* revision : {"2024-11-05", "2025-03-26"}) {
    const auto sent =
        sent_for(*connect(server, revision),
                 "[" + stateless("tools/list") + R"(,{"jsonrpc":"2.0","id":2,"method":"ping"},5])");
    ASSERT_EQ(sent.size(), 1U);
    const json::array answers = parse_json(sent[0].text).as_array();
    ASSERT_EQ(answers.size(), 3U) << sent[0].text;
    EXPECT_EQ(answers[0].at("id"), 1);
    EXPECT_EQ(answers[0].at("error").at("code"), -32600);
    EXPECT_TRUE(answers[1].as_object().contains("result"));
    EXPECT_TRUE(answers[2].at("id").is_null()) << "as these revisions have it";
  }
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
