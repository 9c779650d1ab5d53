// Requests of a run's socket that are cut short, malformed, too large or hostile.

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "casemate/host_tools/channel_client_test.h"
#include "casemate/host_tools/channel_frame.h"
#include "casemate/host_tools/channel_served_test.h"
#include "casemate/host_tools/tools_test.h"

namespace casemate {
namespace {

TEST(HostToolChannel, CutsOffWhatIsNoRequest) {
  Served served({echo()});
  ChannelClient good(served.address);
  for (const std::string& bytes :
       {std::string(4, '\0'), std::string(4, '\xff'), little_endian(kMinRequestBytes - 1, 4),
        std::string(1 << 20, '\xfe')}) {
    ChannelClient client(served.address);
    try {
      client.send(bytes);
    } catch (const std::system_error&) {
      continue;  // cut off while it was still talking
    }
    const auto answer = client.receive();
    if (answer) {
      EXPECT_EQ(answer->id, 0U);
      EXPECT_EQ(answer->text, "Error: what was sent is no request.");
    }
  }
  EXPECT_EQ(good.call("echo", "{}"), "{}");
}

TEST(HostToolChannel, AHalfRequestHoldsUpNobody) {
  Served served({echo()});
  ChannelClient half(served.address);
  const std::string whole = channel_request(3, "echo", "{}");
  half.send(whole.substr(0, 7));
  ChannelClient good(served.address);
  EXPECT_EQ(good.call("echo", "{}"), "{}");
  half.send(whole.substr(7));
  EXPECT_EQ(half.receive()->text, "{}");
  ChannelClient gone(served.address);
  gone.send(whole.substr(0, 5));
}

TEST(HostToolChannel, RefusesWhatIsMalformedOrTooLargeAndGoesOn) {
  HostToolRegistryOptions options = roomy();
  options.response_limits.max_bytes_per_file = 100;
  Served served({echo()}, options);
  ChannelClient client(served.address);
  const std::string body = little_endian(9, 4) + little_endian(500, 2) + "ab";
  client.send(little_endian(body.size(), 4) + body);
  EXPECT_EQ(client.receive()->text, "Error: the host cannot take the request apart.");
  // 64 KiB are taken however small answers are; 6 bytes are the request's, 4 the name's.
  const auto padded = [](std::size_t bytes) { return std::string(bytes - 2, ' ') + "{}"; };
  EXPECT_EQ(client.call("echo", padded(64 * kKiB - 10)), "{}");
  EXPECT_EQ(client.call("echo", padded(64 * kKiB - 9)),
            "Error: the arguments are too large: the request has 65537 bytes; one may have 65536.");
  EXPECT_EQ(client.call("echo", std::string(10 << 20, '[')),
            "Error: the arguments are too large: the request has 10485770 bytes; one may have "
            "65536.");
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  EXPECT_EQ(served.run.counters().dispatched, 2U);
}

// Arguments that are `bytes` of text for no object but `{}`.
std::string spaces_and_object(std::size_t bytes) { return std::string(bytes - 2, ' ') + "{}"; }

TEST(HostToolChannel, HalfRequestsOfAllCallersTogetherAreBounded) {
  HostToolRegistryOptions options = roomy();
  options.response_limits = {kMiB, kMiB, kMany};
  Served served({echo()}, options);
  const std::string whole = channel_request(1, "echo", spaces_and_object(900 * kKiB));
  const std::size_t half = 800 * kKiB;
  // Sent is all but what a socket's buffer takes, so the host has well over the 10 MiB of them.
  std::vector<std::unique_ptr<ChannelClient>> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<ChannelClient>(served.address));
    clients.back()->set_room(64 * 1024);
    clients.back()->send(whole.substr(0, half));
  }
  for (const auto& client : clients) client->send(whole.substr(half));
  int taken = 0;
  int refused = 0;
  for (const auto& client : clients) {
    const std::string text = client->receive()->text;
    taken += text == "{}";
    refused += text.find("of the 10485760 that the host holds for the calls") != std::string::npos;
  }
  EXPECT_EQ(taken + refused, 24);
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(HostToolChannel, WhatVanishedCallersSentCountsNoMore) {
  HostToolRegistryOptions options = roomy();
  options.response_limits = {kMiB, kMiB, kMany};
  Served served({echo()}, options);
  const std::string whole = channel_request(1, "echo", spaces_and_object(900 * kKiB));
  for (int i = 0; i < 24; ++i) ChannelClient(served.address).send(whole.substr(0, 800 * kKiB));
  // The host notices the end by itself; until then they count.
  while (ChannelClient(served.address).call("echo", spaces_and_object(900 * kKiB)) != "{}") {
  }
}

TEST(HostToolChannel, OneRequestMayBeLargerThanAllAnswersTogether) {
  HostToolRegistryOptions options = roomy();
  options.response_limits = {kMiB, 100 * kKiB, kMany};
  Served served({echo()}, options);
  ChannelClient client(served.address);
  EXPECT_EQ(client.call("echo", spaces_and_object(500 * kKiB)), "{}");
}

TEST(HostToolChannel, HostileJsonIsRefusedAndTheNextCallServed) {
  // HT-04 as the host sees it.
  Served served({echo()});
  ChannelClient client(served.address);
  for (const std::string& arguments : std::vector<std::string>{
           std::string(200'000, '['), R"({"a":1,"a":1})", R"({"a":NaN})", "{\"a\":\"\xff\xfe\"}",
           R"({"a":99999999999999999999})", R"({"a":1e400})", std::string("{\0}", 3)}) {
    EXPECT_EQ(client.call("echo", arguments).substr(0, 6), "Error:");
    EXPECT_EQ(client.call("echo", "{}"), "{}");
  }
  EXPECT_EQ(client.call(std::string("\xff\0x", 3), "{}"),
            R"(Error: there is no host tool '\xff\x00x'.)");
}

}  // namespace
}  // namespace casemate
