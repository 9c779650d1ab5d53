// How tunnels end, and gateways.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <list>
#include <thread>

#include "casemate/egress/gateway_fixture_test.h"

namespace casemate {
namespace {

using namespace std::string_literals;
using namespace std::chrono_literals;

// -- What breaks -------------------------------------------------------------------------------

// Whether the host takes nothing more of this client either.
bool is_broken_off(const Door& client) {
  pollfd entry{client.fd(), 0, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & POLLHUP) != 0;
}

// Whether the next read finds a reset instead of an end.
bool is_reset(const Stream& stream) {
  char byte = 0;
  ssize_t got = 1;
  while (got > 0) got = recv(stream.fd(), &byte, 1, 0);
  return got < 0 && errno == ECONNRESET;
}

void reset(const Stream& stream) {
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(stream.fd(), &nobody, sizeof nobody);
}

TEST_F(Gateway, AnOriginThatBreaksOffIsNoEnd) {
  const Origin clean(kPublicIpv4, 0, [](const Stream& stream) {
    stream.send("all of it");
    stream.end_sending();
    stream.read_all();
  });
  std::promise<void> heard;
  std::future<void> was_heard = heard.get_future();
  const Origin broken(kPublicIpv4, 0, [&](const Stream& stream) {
    stream.send("a part");
    was_heard.wait();
    reset(stream);
  });
  allow(fmt::format("a.test:{}", clean.port()));
  allow(fmt::format("a.test:{}", broken.port()));
  serve();
  const Door first = door();
  ASSERT_EQ(first.code("a.test", clean.port()), EgressCode::opened);
  EXPECT_EQ(first.read_all(), "all of it");
  EXPECT_FALSE(is_broken_off(first));
  const Door second = door();
  ASSERT_EQ(second.code("a.test", broken.port()), EgressCode::opened);
  EXPECT_EQ(second.read(6), "a part");
  heard.set_value();
  EXPECT_EQ(second.read_all(), "");
  EXPECT_TRUE(is_broken_off(second));
  EXPECT_NE(records().at(1).reason.find("broken off"), std::string::npos);
}

TEST_F(Gateway, AProgramThatBreaksOffIsNoEndForTheOrigin) {
  std::promise<bool> clean;
  const Origin first(kPublicIpv4, 0, [&](const Stream& stream) {
    stream.read(1);
    clean.set_value(is_reset(stream));
  });
  std::promise<bool> broken;
  std::promise<void> heard;
  const Origin second(kPublicIpv4, 0, [&](const Stream& stream) {
    stream.read(1);
    heard.set_value();
    broken.set_value(is_reset(stream));
  });
  allow(fmt::format("a.test:{}", first.port()));
  allow(fmt::format("a.test:{}", second.port()));
  serve();
  const Door ends = door();
  ASSERT_EQ(ends.code("a.test", first.port()), EgressCode::opened);
  ends.send("x");
  ends.end_sending();
  EXPECT_FALSE(clean.get_future().get());
  {
    const Door hangs_up = door();
    ASSERT_EQ(hangs_up.code("a.test", second.port()), EgressCode::opened);
    hangs_up.send("x");
    heard.get_future().wait();
  }
  EXPECT_TRUE(broken.get_future().get());
  EXPECT_NE(records().at(1).reason.find("the program hung up"), std::string::npos);
}

// A bound of the host's, the call's end.
TEST_F(Gateway, WhatTheHostEndsIsBrokenOffOnBothSides) {
  std::vector<std::promise<bool>> seen(2);
  std::atomic<std::size_t> next = 0;
  const Origin origin(kPublicIpv4, 0, [&](const Stream& stream) {
    stream.read(1);
    stream.send("y");
    seen.at(next++).set_value(is_reset(stream));
  });
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_bytes_out = 2;
  serve();
  const Door bounded = door();
  ASSERT_EQ(bounded.code("a.test", origin.port()), EgressCode::opened);
  bounded.send("x");
  EXPECT_EQ(bounded.read(1), "y");
  bounded.send("xx");
  EXPECT_EQ(bounded.read_all(), "");
  EXPECT_TRUE(is_broken_off(bounded));
  EXPECT_TRUE(seen[0].get_future().get());

  gateway_.reset();
  serve();
  const Door last = door();
  ASSERT_EQ(last.code("a.test", origin.port()), EgressCode::opened);
  last.send("x");
  EXPECT_EQ(last.read(1), "y");
  gateway_->close();
  EXPECT_TRUE(is_broken_off(last));
  EXPECT_TRUE(seen[1].get_future().get());
}

TEST_F(Gateway, UrgentDataIsPassedOnAndHoldsNothingUp) {
  const Origin origin(kPublicIpv4, 0, [](const Stream& stream) {
    stream.send("before");
    EXPECT_EQ(::send(stream.fd(), "!", 1, MSG_OOB | MSG_NOSIGNAL), 1);
    stream.send("behind");
    stream.end_sending();
  });
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(client.read_all(), "before!behind");
}

// -- The end -----------------------------------------------------------------------------------

// EG-26
TEST_F(Gateway, ItsEndClosesEveryTunnelAndGivesEveryDescriptorBack) {
  const std::size_t before = open_descriptors();
  {
    const Origin origin(kPublicIpv4, 0, echo);
    allow(fmt::format("a.test:{}", origin.port()));
    serve();
    std::list<Door> clients;
    for (int index = 0; index < 20; ++index) {
      clients.push_back(door());
      if (index % 2 == 0) {
        ASSERT_EQ(clients.back().code("a.test", origin.port()), EgressCode::opened);
      } else {
        clients.back().send("x");
      }
    }
    gateway_->close();
    for (const Door& client : clients) EXPECT_EQ(client.read_all(), "");
    EXPECT_EQ(gateway_->records().size(), 10U);
    EXPECT_NE(gateway_->records()[0].reason.find("the call ended"), std::string::npos);
    EXPECT_THROW(Door{address_}, std::system_error) << "nobody listens";
    gateway_->close();
    gateway_.reset();
  }
  // A thread of a look-up may just be putting its things away.
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (open_descriptors() > before && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_LE(open_descriptors(), before);
}

TEST_F(Gateway, ItsEndDoesNotWaitForALookUpThatHangs) {
  auto begun = std::make_shared<std::promise<void>>();
  auto go_on = std::make_shared<std::promise<void>>();
  options_.resolver = [begun, go_on](const std::string&, const std::stop_token&) {
    begun->set_value();
    go_on->get_future().wait();
    return std::vector<IpAddress>();
  };
  allow("a.test");
  serve();
  const Door client = door();
  client.send(encode_egress(EgressRequest{EgressDoor::socks, "a.test", 443}));
  begun->get_future().wait();
  gateway_.reset();
  EXPECT_EQ(client.read_all(), "");
  go_on->set_value();
}

TEST_F(Gateway, AProgramThatHangsUpIsNotDialledFor) {
  auto begun = std::make_shared<std::promise<void>>();
  auto go_on = std::make_shared<std::promise<void>>();
  options_.resolver = [begun, go_on](const std::string&, const std::stop_token&) {
    begun->set_value();
    go_on->get_future().wait();
    return std::vector{IpAddress::parse(kPublicIpv4).value()};
  };
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_tunnels = 1;
  serve();
  {
    const Door client = door();
    client.send(encode_egress(EgressRequest{EgressDoor::socks, "a.test", origin.port()}));
    begun->get_future().wait();
  }
  // Its place is free once that was seen.
  while (door().code("other.test", 1) == EgressCode::too_many) {
  }
  go_on->set_value();
  EXPECT_NE(records().at(0).reason.find("the program hung up"), std::string::npos);
  EXPECT_EQ(origin.connections(), 0);
}

TEST_F(Gateway, MayEndBeforeItServed) {
  options_.allow.clear();
  const EgressGateway never(options_);
  EXPECT_TRUE(never.records().empty());
}

}  // namespace
}  // namespace casemate
