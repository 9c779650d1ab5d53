#include "casemate/mcp/json_rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "casemate/base/json.h"

namespace casemate::mcp {
namespace {

using testing::HasSubstr;

MessageFault fault_of(std::string_view text) {
  const Received received = read_message(text);
  EXPECT_EQ(received.parts.size(), 1U) << text;
  const auto* fault = std::get_if<MessageFault>(&received.parts.front());
  EXPECT_NE(fault, nullptr) << text;
  return fault == nullptr ? MessageFault{} : *fault;
}

Message message_of(std::string_view text) {
  const Received received = read_message(text);
  const auto* message = std::get_if<Message>(&received.parts.front());
  EXPECT_NE(message, nullptr) << text;
  return message == nullptr ? Message{} : *message;
}

// MCP-02
TEST(JsonRpc, CallsWhatIsNoJsonAParseError) {
  for (const std::string& text :
       {std::string("NOT JSON"), std::string("{"), std::string("\xff\xfe"), std::string(),
        std::string("\xef\xbb\xbf{}"), std::string(200'000, '['),
        std::string(R"({"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"})"),
        std::string(R"({"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"})"),
        std::string("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"\xff\"}")}) {
    const MessageFault fault = fault_of(text);
    EXPECT_EQ(fault.code, ErrorCode::parse_error) << text.substr(0, 40);
    EXPECT_FALSE(fault.id);
  }
}

TEST(JsonRpc, CallsWhatIsNoMessageAnInvalidRequestAndKeepsItsId) {
  for (const char* text :
       {R"("ping")", "1", "null", "true", "{}", "[]", R"({"jsonrpc":"2.0"})",
        R"({"jsonrpc":"2.0","id":null,"method":"ping"})",
        R"({"jsonrpc":"2.0","id":1.5,"method":"ping"})",
        R"({"jsonrpc":"2.0","id":1.0,"method":"ping"})",
        R"({"jsonrpc":"2.0","id":true,"method":"ping"})",
        R"({"jsonrpc":"2.0","id":{},"method":"ping"})", R"({"jsonrpc":"2.0","result":{}})"}) {
    EXPECT_EQ(fault_of(text).code, ErrorCode::invalid_request) << text;
    EXPECT_FALSE(fault_of(text).id) << text;
  }
  for (const char* text :
       {R"({"jsonrpc":"1.0","id":7,"method":"ping"})", R"({"id":7,"method":"ping"})",
        R"({"jsonrpc":2.0,"id":7,"method":"ping"})", R"({"jsonrpc":"2.0","id":7})",
        R"({"jsonrpc":"2.0","id":7,"method":5})"}) {
    ASSERT_TRUE(fault_of(text).id) << text;
    EXPECT_EQ(fault_of(text).id->json(), "7");
  }
}

TEST(JsonRpc, KeepsIdsApartByTypeAndSendsThemBackAsTheyCame) {
  const auto id = [](std::string_view text) {
    return message_of(R"({"jsonrpc":"2.0","method":"ping","id":)" + std::string(text) + "}").id;
  };
  for (const char* text :
       {"0", "-1", "9223372036854775807", "18446744073709551615", R"("")", R"("5")", R"("a b")"}) {
    ASSERT_TRUE(id(text)) << text;
    EXPECT_EQ(id(text)->json(), text);
  }
  EXPECT_NE(id("5"), id(R"("5")"));
  EXPECT_EQ(id(R"("\u0041")"), id(R"("A")"));
}

TEST(JsonRpc, BoundsIdsAndMethods) {
  const auto with_id = [](std::size_t bytes) {
    return R"({"jsonrpc":"2.0","method":"ping","id":")" + std::string(bytes, 'x') + R"("})";
  };
  EXPECT_TRUE(message_of(with_id(kMaxIdBytes)).id);
  EXPECT_EQ(fault_of(with_id(kMaxIdBytes + 1)).code, ErrorCode::invalid_request);
  const auto with_method = [](std::size_t bytes) {
    return R"({"jsonrpc":"2.0","id":1,"method":")" + std::string(bytes, 'x') + R"("})";
  };
  EXPECT_TRUE(message_of(with_method(kMaxIdBytes)).id);
  EXPECT_EQ(fault_of(with_method(kMaxIdBytes + 1)).code, ErrorCode::invalid_request);
}

TEST(JsonRpc, BoundsMessagesAndBatches) {
  const std::string ping = R"({"jsonrpc":"2.0","method":"ping"})";
  EXPECT_TRUE(std::holds_alternative<Message>(
      read_message(ping, {.max_bytes = ping.size()}).parts.front()));
  const Received over = read_message(ping, {.max_bytes = ping.size() - 1});
  EXPECT_THAT(std::get<MessageFault>(over.parts.front()).message, HasSubstr("at most 32 bytes"));
  const Received two = read_message("[" + ping + "," + ping + "]", {.max_batch = 2});
  EXPECT_TRUE(two.batch);
  EXPECT_EQ(two.parts.size(), 2U);
  const Received three = read_message("[" + ping + "," + ping + "," + ping + "]", {.max_batch = 2});
  EXPECT_FALSE(three.batch);
  EXPECT_EQ(std::get<MessageFault>(three.parts.front()).code, ErrorCode::invalid_request);
}

TEST(JsonRpc, TellsRequestsNotificationsAndResponsesApart) {
  EXPECT_EQ(message_of(R"({"jsonrpc":"2.0","id":1,"method":"a"})").kind, Message::Kind::request);
  EXPECT_EQ(message_of(R"({"jsonrpc":"2.0","method":"a"})").kind, Message::Kind::notification);
  EXPECT_EQ(message_of(R"({"jsonrpc":"2.0","id":1,"result":{}})").kind, Message::Kind::response);
  EXPECT_EQ(message_of(R"({"jsonrpc":"2.0","id":1,"error":{}})").kind, Message::Kind::response);
  EXPECT_TRUE(message_of(R"({"jsonrpc":"2.0","id":1,"method":"a","params":[]})").params_fault);
  EXPECT_FALSE(read_message(R"({"jsonrpc":"2.0","method":"a"})").wants_answer());
  EXPECT_TRUE(read_message("x").wants_answer());
}

TEST(JsonRpc, WritesAnErrorWithoutAnIdAsTheRevisionHasIt) {
  EXPECT_EQ(error_text(std::nullopt, ErrorCode::parse_error, "no \"x\"", {}, false),
            R"({"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no \"x\""}})");
  EXPECT_EQ(error_text(std::nullopt, ErrorCode::parse_error, "x", {}, true),
            R"({"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}})");
}

TEST(JsonRpc, AMessageIsWeighedByTheMemoryThatItHolds) {
  const auto weight = [](const std::string& params) {
    const Received received =
        read_message(R"({"jsonrpc":"2.0","id":1,"method":"m","params":)" + params + "}");
    return std::get<Message>(received.parts.at(0)).bytes;
  };
  std::string numbers = "1";
  for (int at = 0; at < 10'000; ++at) numbers += ",1";
  EXPECT_GE(weight(R"({"a":[)" + numbers + "]}"), 160'000u) << "in 20 kB of text";
  EXPECT_GE(weight(R"({"a":")" + std::string(50'000, 'x') + R"("})"), 50'000u);
  std::string entries = R"("k":1)";
  for (int at = 0; at < 1000; ++at) entries += ",\"k" + std::to_string(at) + "\":1";
  EXPECT_GE(weight("{" + entries + "}"), 36'000u);
  EXPECT_LT(weight("{}"), 1000u);
}

TEST(JsonRpc, AMessageThatUnfoldsToTooMuchIsRefused) {
  const MessageBounds bounds{.max_bytes = 100'000, .max_memory_bytes = 100'000};
  std::string numbers = "1";
  for (int at = 0; at < 10'000; ++at) numbers += ",1";
  const Received received = read_message(
      R"({"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[)" + numbers + "]}}", bounds);
  const auto& fault = std::get<MessageFault>(received.parts.at(0));
  EXPECT_EQ(fault.code, ErrorCode::invalid_request);
  EXPECT_NE(fault.message.find("memory"), std::string::npos);
}

}  // namespace
}  // namespace casemate::mcp
