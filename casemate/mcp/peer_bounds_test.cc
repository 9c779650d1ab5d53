// What waits, and what it takes of memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "casemate/mcp/served_test.h"

namespace casemate::mcp {
namespace {

using testing::HasSubstr;

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

TEST(Peer, ACancelledCallThatWaitsGivesUpItsPlaceAtOnce) {
  ServerOptions options = test_options();
  options.calls = {.max_running = 1, .max_waiting = 1};
  const Server server(std::move(options));
  const auto peer = connect(server, "2025-11-25");
  const auto running = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("1", "wait", "{}", R"({"progressToken":1})")), running);
  running->first(1);
  const auto waiting = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("2", "echo", R"({"text":"a"})")), waiting);
  sent_for(*peer,
           R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}})");
  EXPECT_TRUE(waiting->all().empty()) << "over, and not answered";
  const auto next = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("3", "echo", R"({"text":"a"})")), next);
  // A client that goes gives up its places likewise.
  const auto other = connect(server, "2025-11-25");
  peer->close();
  running->all();
  EXPECT_TRUE(next->all().empty());
  EXPECT_EQ(first_text(answer(*other, call("4", "echo", R"({"text":"a"})"))), "a");
}

TEST(Peer, CountsTheMemoryOfWhatWaits) {
  ServerOptions options = test_options();
  options.calls = {.max_running = 1, .max_waiting_bytes = 100'000};
  const Server server(std::move(options));
  const auto peer = connect(server, "2025-11-25");
  const auto running = std::make_shared<RecordingOutlet>();
  peer->receive(read_message(call("1", "wait", "{}", R"({"progressToken":1})")), running);
  running->first(1);
  std::string numbers = "1";
  for (int at = 0; at < 10'000; ++at) numbers += ",1";
  const auto refused = sent_for(*peer, call("2", "echo", R"({"text":[)" + numbers + "]}"));
  EXPECT_EQ(refused.at(0).http_status, 429) << "20 kB of text are 160 kB";
}

TEST(Peer, BoundsWhatTheAnswersToABatchAreTogether) {
  ServerOptions options = test_options();
  options.read_artifact = [](const LandedArtifact&, std::uint64_t) {
    return std::string(7'000'000, 'x');
  };
  const Server server(std::move(options));
  const auto peer = connect(server, "2025-03-26");
  const json::object landed = answer(*peer, call("1", "land", R"({"name":"a.txt"})"));
  const std::string text(landed.at("result").at("content").at(1).at("text").as_string());
  const std::string uri = text.substr(text.find("casemate://"));
  std::string batch;
  for (int id = 0; id < 5; ++id) {
    batch += id == 0 ? "[" : ",";
    batch += R"({"jsonrpc":"2.0","id":)" + std::to_string(id) +
             R"(,"method":"resources/read","params":{"uri":")" + uri + R"("}})";
  }
  const auto sent = sent_for(*peer, batch + "]");
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_LT(sent[0].text.size(), 17'000'000U);
  int read = 0;
  const json::array answers = parse_json(sent[0].text, {.max_bytes = 20'000'000}).get_array();
  for (const json::value& each : answers) {
    if (each.as_object().contains("result")) ++read;
  }
  EXPECT_EQ(read, 2);
}

}  // namespace
}  // namespace casemate::mcp
