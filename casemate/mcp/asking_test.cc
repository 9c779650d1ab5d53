#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "casemate/core/errors.h"
#include "casemate/mcp/ask_client.h"
#include "casemate/mcp/served_test.h"

namespace casemate::mcp {
namespace {

using testing::HasSubstr;

constexpr std::string_view kAble = R"({"elicitation":{}})";

std::string initialize_with(std::string_view revision, std::string_view capabilities) {
  return R"({"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":")" +
         std::string(revision) + R"(","capabilities":)" + std::string(capabilities) +
         R"(,"clientInfo":{"name":"test","version":"1"}}})";
}

std::string stateless_with(std::string_view capabilities, std::string_view method,
                           std::string_view params = "") {
  return R"({"jsonrpc":"2.0","id":1,"method":")" + std::string(method) +
         R"(","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
         R"("io.modelcontextprotocol/clientCapabilities":)" +
         std::string(capabilities) + "}" + std::string(params) + "}}";
}

// `danger` asks for approval; `ask` asks its user for a name, and his client for its roots.
ServerOptions options_that_ask() {
  ServerOptions options;
  options.tools.push_back({make_tool(
      {.name = "danger",
       .parameters = R"({"type":"object","additionalProperties":false,)"
                     R"("properties":{"code":{"type":"string"}}})",
       .approval_mode = ApprovalMode::always_require,
       .run = [](const json::object&, const ToolCall&) { return ToolResult{.text = "ran"}; }})});
  options.tools.push_back({make_tool(
      {.name = "ask", .run = [](const json::object&, const ToolCall&) {
         const auto name = ask_client(
             "name", "elicitation/create",
             {{"message", "who?"},
              {"requestedSchema", {{"type", "object"}, {"properties", json::object()}}}});
         if (!name) return ToolResult{.text = "nobody", .is_error = true};
         const auto roots = ask_client("roots", "roots/list", {});
         return ToolResult{.text = serialise_json(*name) + (roots ? serialise_json(*roots) : "")};
       }})});
  return options;
}

std::vector<std::string> listed(Peer& peer, std::string_view request) {
  std::vector<std::string> names;
  const json::object reply = answer(peer, request);
  for (const json::value& tool : reply.at("result").at("tools").as_array()) {
    names.emplace_back(tool.at("name").as_string());
  }
  return names;
}

void respond(Peer& peer, const json::value& asked, std::string_view result) {
  EXPECT_TRUE(sent_for(peer, R"({"jsonrpc":"2.0","id":)" + serialise_json(asked.at("id")) +
                                 R"(,"result":)" + std::string(result) + "}")
                  .empty());
}

TEST(Asking, AToolThatNeedsApprovalIsThereForClientsThatCanAskTheirUser) {
  const Server server(options_that_ask());
  const std::string list = R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})";
  const auto seen_by = [&](std::string_view revision, std::string_view capabilities) {
    const auto peer = server.connect({"me", true});
    answer(*peer, initialize_with(revision, capabilities));
    const auto names = listed(*peer, list);
    const bool there = testing::Value(names, testing::Contains("danger"));
    if (!there) {
      EXPECT_EQ(error_code(answer(*peer, call("1", "danger", "{}"))), -32602);
    }
    return there;
  };
  EXPECT_TRUE(seen_by("2025-06-18", kAble));
  EXPECT_TRUE(seen_by("2025-11-25", R"({"elicitation":{"form":{},"url":{}}})"));
  EXPECT_FALSE(seen_by("2025-11-25", R"({"elicitation":{"url":{}}})"));
  EXPECT_FALSE(seen_by("2025-11-25", "{}"));
  EXPECT_FALSE(seen_by("2025-11-25", R"({"elicitation":5})"));
  EXPECT_FALSE(seen_by("2025-03-26", kAble)) << "it has no elicitation";
  const auto peer = server.connect({"me", true});
  EXPECT_THAT(listed(*peer, stateless_with(kAble, "tools/list")), testing::Contains("danger"));
  EXPECT_THAT(listed(*peer, stateless_with("{}", "tools/list")),
              testing::Not(testing::Contains("danger")));
  EXPECT_EQ(answer(*peer, stateless_with(kAble, "tools/list")).at("result").at("cacheScope"),
            "private");
  const auto refused = sent_for(*peer, stateless_with("{}", "tools/call", R"(,"name":"danger")"));
  EXPECT_THAT(refused.at(0).text, HasSubstr("-32021"));
  EXPECT_THAT(refused.at(0).text, HasSubstr(R"("requiredCapabilities":{"elicitation")"));
  EXPECT_EQ(refused.at(0).http_status, 400);

  ServerOptions options = options_that_ask();
  options.ask_clients = AskClients::no;
  const Server nobody(std::move(options));
  EXPECT_THAT(nobody.tool_names(), testing::ElementsAre("ask"));
}

TEST(Asking, AClientWithASessionIsAskedInTheMiddleOfItsCall) {
  const Server server(options_that_ask());
  for (const char* revision : {"2025-06-18", "2025-11-25"}) {
    const auto peer = server.connect({"me", true});
    answer(*peer, initialize_with(revision, kAble));
    const auto ask = [&](std::string_view response) {
      const auto outlet = std::make_shared<RecordingOutlet>();
      peer->receive(read_message(call("5", "danger", R"({"code":"rm -r"})")), outlet);
      const json::value asked = parse_json(outlet->first(1).at(0).text);
      EXPECT_EQ(asked.at("method"), "elicitation/create");
      EXPECT_THAT(std::string(asked.at("params").at("message").as_string()),
                  HasSubstr(R"({"code":"rm -r"})"));
      respond(*peer, asked, response);
      return parse_json(outlet->all().at(1).text);
    };
    EXPECT_EQ(first_text(ask(R"({"action":"accept","content":{}})")), "ran");
    for (const char* no : {R"({"action":"decline"})", R"({"action":"cancel"})", "{}",
                           R"({"action":5})", R"({"action":"ACCEPT"})"}) {
      EXPECT_THAT(first_text(ask(no)), HasSubstr("not approved")) << no;
    }
    // An error, and answers to nothing that was asked.
    const auto outlet = std::make_shared<RecordingOutlet>();
    peer->receive(read_message(call("5", "danger", "{}")), outlet);
    const json::value asked = parse_json(outlet->first(1).at(0).text);
    for (const char* other : {R"("casemate-0")", "5", R"("x")"}) {
      sent_for(*peer, R"({"jsonrpc":"2.0","id":)" + std::string(other) +
                          R"(,"result":{"action":"accept"}})");
    }
    sent_for(*peer, R"({"jsonrpc":"2.0","id":)" + serialise_json(asked.at("id")) +
                        R"(,"error":{"code":-1,"message":"no"}})");
    respond(*peer, asked, R"({"action":"accept"})");
    EXPECT_THAT(first_text(parse_json(outlet->all().at(1).text)), HasSubstr("not approved"));
  }
}

TEST(Asking, AnotherClientsAnswerIsNone) {
  const Server server(options_that_ask());
  const auto peer = server.connect({"me", true});
  const auto other = server.connect({"me", true});
  for (const auto& each : {peer, other}) answer(*each, initialize_with("2025-11-25", kAble));
  const auto outlet = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("5", "danger", "{}")), outlet);
  const json::value asked = parse_json(outlet->first(1).at(0).text);
  respond(*other, asked, R"({"action":"accept"})");
  EXPECT_EQ(peer->in_flight(), 1U);
  respond(*peer, asked, R"({"action":"decline"})");
  EXPECT_THAT(first_text(parse_json(outlet->all().at(1).text)), HasSubstr("not approved"));
}

TEST(Asking, NoAnswerInTimeIsANoAndACancelledCallWaitsForNone) {
  ServerOptions options = options_that_ask();
  options.ask_patience = std::chrono::milliseconds(1);
  const Server impatient(std::move(options));
  const auto peer = impatient.connect({"me", true});
  answer(*peer, initialize_with("2025-11-25", kAble));
  const auto sent = sent_for(*peer, call("5", "danger", "{}"));
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_THAT(sent[1].text, HasSubstr("notifications/cancelled"));
  EXPECT_THAT(sent[2].text, HasSubstr("not approved"));

  const Server patient(options_that_ask());
  const auto waiting = patient.connect({"me", true});
  answer(*waiting, initialize_with("2025-11-25", kAble));
  const auto outlet = std::make_shared<RecordingOutlet>();
  waiting->receive(read_message(call("5", "danger", "{}")), outlet);
  outlet->first(1);
  waiting->close();
  EXPECT_EQ(outlet->all().size(), 1U);
  EXPECT_EQ(patient.stop(std::chrono::seconds(30)), 0U);
}

TEST(Asking, WhatCannotBeShownWholeIsNotApproved) {
  const Server server(options_that_ask());
  const auto peer = server.connect({"me", true});
  answer(*peer, initialize_with("2025-11-25", kAble));
  EXPECT_THAT(first_text(answer(
                  *peer, call("1", "danger", R"({"code":")" + std::string(70'000, ' ') + R"("})"))),
              HasSubstr("cannot be shown"));
}

class AskingStateless : public testing::Test {
 protected:
  json::object ask(Peer& peer, std::string_view more = "", std::string_view name = "danger",
                   std::string_view arguments = R"({"code":"x"})") {
    return answer(peer, stateless_with(R"({"elicitation":{},"roots":{}})", "tools/call",
                                       R"(,"name":")" + std::string(name) + R"(","arguments":)" +
                                           std::string(arguments) + std::string(more)));
  }
  static std::string state_of(const json::object& reply) {
    return std::string(reply.at("result").at("requestState").as_string());
  }
  static std::string answered(std::string_view state, std::string_view responses) {
    return R"(,"requestState":")" + std::string(state) + R"(","inputResponses":)" +
           std::string(responses);
  }
  static constexpr std::string_view kYes = R"({"approval":{"action":"accept"}})";

  const Server server_{options_that_ask()};
  const std::shared_ptr<Peer> peer_ = server_.connect({"me", true});
};

TEST_F(AskingStateless, IsToldWhatToAskAndComesBackWithTheAnswer) {
  const json::object asked = ask(*peer_);
  EXPECT_EQ(asked.at("result").at("resultType"), "input_required");
  const json::value& question = asked.at("result").at("inputRequests").at("approval");
  EXPECT_EQ(question.at("method"), "elicitation/create");
  EXPECT_FALSE(asked.at("result").as_object().contains("content"));
  EXPECT_EQ(first_text(ask(*peer_, answered(state_of(asked), kYes))), "ran");
}

TEST_F(AskingStateless, AnAnswerCountsOnceForWhatWasAskedAndForWhoWasAsked) {
  const std::string state = state_of(ask(*peer_));
  const std::string yes = answered(state, kYes);
  const auto other = server_.connect({"another", true});
  EXPECT_EQ(error_code(ask(*other, yes)), -32602);
  EXPECT_EQ(error_code(ask(*peer_, yes, "danger", R"({"code":"y"})")), -32602);
  EXPECT_EQ(error_code(ask(*peer_, yes, "ask")), -32602);
  EXPECT_EQ(error_code(ask(*peer_, answered(state + "x", kYes))), -32602);
  EXPECT_EQ(error_code(ask(*peer_, R"(,"requestState":5)")), -32602);
  EXPECT_EQ(first_text(ask(*peer_, yes)), "ran");
  EXPECT_EQ(error_code(ask(*peer_, yes)), -32602) << "once";
}

TEST_F(AskingStateless, WithoutAnAnswerItIsAskedAgainAndANoIsANo) {
  // Nothing was asked that this could be the answer to.
  EXPECT_TRUE(ask(*peer_, R"(,"inputResponses":)" + std::string(kYes))
                  .at("result")
                  .as_object()
                  .contains("inputRequests"));
  for (const char* nothing : {"{}", "5", R"({"approval":5})", R"({"other":{"action":"accept"}})"}) {
    const json::object again = ask(*peer_, answered(state_of(ask(*peer_)), nothing));
    EXPECT_TRUE(again.at("result").as_object().contains("inputRequests")) << nothing;
  }
  const std::string state = state_of(ask(*peer_));
  EXPECT_THAT(first_text(ask(*peer_, answered(state, R"({"approval":{"action":"decline"}})"))),
              HasSubstr("not approved"));
}

TEST_F(AskingStateless, AToolMayAskOneThingAfterAnother) {
  const json::object first = ask(*peer_, "", "ask", "{}");
  EXPECT_TRUE(first.at("result").at("inputRequests").as_object().contains("name"));
  const json::object second =
      ask(*peer_, answered(state_of(first), R"({"name":{"action":"accept"},"roots":{"roots":[]}})"),
          "ask", "{}");
  EXPECT_EQ(second.at("result").at("inputRequests").as_object().size(), 1U);
  EXPECT_TRUE(second.at("result").at("inputRequests").as_object().contains("roots"))
      << "what was not asked is not answered";
  const json::object last =
      ask(*peer_, answered(state_of(second), R"({"roots":{"roots":[]}})"), "ask", "{}");
  EXPECT_EQ(first_text(last), R"({"action":"accept"}{"roots":[]})");
}

TEST_F(AskingStateless, WhoCannotBeAskedIsToldWhatItTakes) {
  const auto sent = sent_for(*peer_, stateless_with("{}", "tools/call", R"(,"name":"ask")"));
  EXPECT_THAT(sent.at(0).text, HasSubstr("-32021"));
  EXPECT_EQ(sent.at(0).http_status, 400);
}

TEST_F(AskingStateless, OneOfSeveralCallersLeavesQuestionsToTheRest) {
  const auto greedy = server_.connect({"greedy", true, Share::three_quarters});
  json::object last;
  std::size_t asked = 0;
  while ((last = ask(*greedy)).contains("result")) ++asked;
  EXPECT_EQ(asked, 192U);
  EXPECT_EQ(error_code(last), -32603);
  EXPECT_TRUE(ask(*peer_).contains("result"));
}

TEST(Asking, OutsideOfACallThereIsNobodyToAsk) { EXPECT_FALSE(ask_client("x", "roots/list", {})); }

TEST(HostMethods, AreServedBesideOurs) {
  ServerOptions options;
  options.more_capabilities = R"({"prompts":{}})";
  options.methods["prompts/get"].answer = [](const json::object& params) -> json::object {
    if (!params.contains("name")) throw InvalidArgument("'name' is missing");
    if (params.at("name") == "gone") throw NoSuchResource("x:gone");
    return {{"messages", json::array()}};
  };
  options.methods["prompts/get"].keep_for = std::chrono::milliseconds(5);
  const Server server(std::move(options));
  const auto peer = server.connect({"me", true});
  const json::object begun = answer(*peer, initialize("2025-11-25"));
  EXPECT_TRUE(begun.at("result").at("capabilities").as_object().contains("prompts"));
  const auto get = [&](std::string_view params) {
    return answer(*peer, R"({"jsonrpc":"2.0","id":1,"method":"prompts/get","params":)" +
                             std::string(params) + "}");
  };
  EXPECT_EQ(serialise_json(get(R"({"name":"a"})").at("result")), R"({"messages":[]})");
  EXPECT_EQ(error_code(get("{}")), -32602);
  EXPECT_EQ(error_code(get(R"({"name":"gone"})")), -32002);
  const json::object kept = answer(*peer, stateless("prompts/get", R"(,"name":"a")"));
  EXPECT_EQ(kept.at("result").at("ttlMs"), 5);
  EXPECT_EQ(error_code(answer(*peer, stateless("prompts/get", R"(,"name":"gone")"))), -32602);
}

}  // namespace
}  // namespace casemate::mcp
