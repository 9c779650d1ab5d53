// What a gateway bounds.

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <latch>
#include <list>
#include <thread>

#include "casemate/egress/client_hello_test.h"
#include "casemate/egress/gateway_fixture_test.h"

namespace casemate {
namespace {

using namespace std::string_literals;
using namespace std::chrono_literals;

TEST_F(Gateway, TakesSoManyTunnelsAndTellsTheNextOne) {
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_tunnels = 3;
  serve();
  std::list<Door> open;
  for (int index = 0; index < 3; ++index) {
    open.push_back(door());
    ASSERT_EQ(open.back().code("a.test", origin.port()), EgressCode::opened);
  }
  EXPECT_EQ(door().answer()->code, EgressCode::too_many);
  // A place is free once the host has seen the end.
  open.front().end_sending();
  EXPECT_EQ(open.front().read_all(), "");
  open.pop_front();
  EXPECT_EQ(door().code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(records().at(3).reason, "3 tunnels are open; as many as a call may have");
}

// What two calls of a process have open counts together, and a third one has its place.
TEST_F(Gateway, TunnelsOfAllCallsShareTheDescriptorsOfTheProcess) {
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  options_.descriptors = std::make_shared<DescriptorBudget>([] { return 6 * 9; });
  const auto fill = [&](std::list<Door>& open) {
    while (true) {
      open.push_back(door());
      const auto code = open.back().code("a.test", origin.port());
      if (code != EgressCode::opened) return code;
    }
  };
  std::list<Door> first;
  std::list<Door> second;
  serve();
  EXPECT_EQ(fill(first), EgressCode::too_many);
  EXPECT_EQ(first.size(), 6U + 1);
  const std::unique_ptr<EgressGateway> of_first = std::move(gateway_);
  serve();
  EXPECT_EQ(fill(second), EgressCode::too_many);
  EXPECT_EQ(second.size(), 2U + 1);
  const std::unique_ptr<EgressGateway> of_second = std::move(gateway_);
  serve();
  EXPECT_EQ(door().code("a.test", origin.port()), EgressCode::opened);
  of_first->close();
  EXPECT_NE(of_first->records().at(6).reason.find("no descriptors"), std::string::npos);
  // All of them are free again.
  std::list<Door> third;
  EXPECT_EQ(fill(third), EgressCode::too_many);
  EXPECT_GE(third.size(), 4U);
}

// Of the sockets of this process that lead to a port: what the kernel may hold in them.
std::size_t buffers_towards(std::uint16_t port) {
  std::size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family != AF_INET || ntohs(peer.sin_port) != port) continue;
    for (const int option : {SO_RCVBUF, SO_SNDBUF}) {
      int value = 0;
      size = sizeof value;
      getsockopt(fd, SOL_SOCKET, option, &value, &size);
      bytes += static_cast<std::size_t>(value);
    }
  }
  return bytes;
}

// So that what nobody reads is held by the two ends, and not by this machine's memory.
TEST_F(Gateway, WhatTheKernelHoldsForTheTunnelsOfACallIsBounded) {
  constexpr std::size_t kTunnels = 300;
  constexpr std::size_t kLeast = 16 * 1024;
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_buffers = 8 << 20;
  serve();
  std::list<Door> open;
  const auto add = [&] {
    open.push_back(door());
    ASSERT_EQ(open.back().code("a.test", origin.port()), EgressCode::opened);
  };
  add();
  const std::size_t of_first = buffers_towards(origin.port());
  EXPECT_GE(of_first, 2 * 64 * 1024U);
  for (std::size_t count = 1; count < kTunnels; ++count) add();
  // Two of a tunnel's three buffers are seen; the kernel doubles what it is asked for.
  EXPECT_LE(buffers_towards(origin.port()), 2 * 2 * (options_.max_buffers / 3 + kTunnels * kLeast));
  // What ended gives back.
  open.clear();
  while (buffers_towards(origin.port()) > 0) std::this_thread::yield();
  add();
  EXPECT_EQ(buffers_towards(origin.port()), of_first);
}

// EG-26
TEST_F(Gateway, ConnectionsThatAskForNothingAreClosed) {
  options_.request_patience = 20ms;
  allow("a.test");
  serve();
  std::list<Door> silent;
  for (int index = 0; index < 100; ++index) {
    silent.push_back(door());
    if (index % 2 == 0) silent.back().send("x");
  }
  for (const Door& client : silent) EXPECT_EQ(client.read_all(), "");
  EXPECT_TRUE(records().empty()) << "nothing was asked";
}

TEST_F(Gateway, TunnelsThatAreIdleAreClosed) {
  const Origin origin(kPublicIpv4, 0, echo);
  options_.idle_patience = 20ms;
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(client.read_all(), "");
  EXPECT_NE(records().at(0).reason.find("; idle"), std::string::npos);
}

TEST_F(Gateway, NoTunnelGetsOlderThanItMay) {
  const Origin origin(kPublicIpv4, 0, [](const Stream& stream) {
    while (stream.send(std::string(1000, 'x'))) {
    }
  });
  options_.max_age = 500ms;
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_FALSE(client.read_all().empty());
  EXPECT_NE(records().at(0).reason.find("older than"), std::string::npos);
}

TEST_F(Gateway, AHelloThatNeverEndsIsCutOff) {
  const Origin origin(kPublicIpv4, 443, echo);
  options_.hello_patience = 20ms;
  allow("a.test");
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", 443), EgressCode::opened);
  client.send(client_hello("a.test").substr(0, 20));
  EXPECT_EQ(client.read_all(), kAlert);
  EXPECT_EQ(records().at(0).reason, "the client's hello took too long");
}

TEST_F(Gateway, ANameThatNobodyAnswersIsGivenUp) {
  auto asked = std::make_shared<std::latch>(1);
  options_.resolver = [asked](const std::string&, const std::stop_token& stop) {
    asked->count_down();
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    changed.wait(lock, stop, [] { return false; });
    return std::vector<IpAddress>();
  };
  options_.resolve_patience = 20ms;
  allow("a.test");
  serve();
  EXPECT_EQ(door().code("a.test", 443), EgressCode::too_slow);
  asked->wait();
  EXPECT_NE(records().at(0).reason.find("resolving took too long"), std::string::npos);
}

// A listener whose queue is full answers no more.
TEST_F(Gateway, AnAddressThatDoesNotAnswerIsGivenUp) {
  const sys::UniqueFd full(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, kOtherIpv4, &at.sin_addr);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(full.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(full.get(), 0), 0);
  ASSERT_EQ(getsockname(full.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  std::list<sys::UniqueFd> waiting;
  for (int index = 0; index < 4; ++index) {
    waiting.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    connect(waiting.back().get(), reinterpret_cast<sockaddr*>(&at), size);
  }
  const std::uint16_t port = ntohs(at.sin_port);
  options_.address_patience = 20ms;
  allow(fmt::format("{}:{}", kOtherIpv4, port));
  allow(fmt::format("a.test:{}", port));
  const Origin origin(kPublicIpv4, port, echo);
  names_.answers["a.test"] = {{kOtherIpv4, kPublicIpv4}};
  serve();
  EXPECT_EQ(door().code(kOtherIpv4, port), EgressCode::too_slow);
  EXPECT_EQ(door().code("a.test", port), EgressCode::opened) << "by its other address";
}

TEST_F(Gateway, SoManyBytesGoOutAndNotOneMore) {
  const Origin origin(kPublicIpv4, 0, [](const Stream& stream) { stream.send(stream.read_all()); });
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_bytes_out = 100'000;
  serve();
  const Door first = door();
  ASSERT_EQ(first.code("a.test", origin.port()), EgressCode::opened);
  first.send(std::string(60'000, 'x'));
  first.end_sending();
  EXPECT_EQ(first.read_all().size(), 60'000U);
  const Door second = door();
  ASSERT_EQ(second.code("a.test", origin.port()), EgressCode::opened);
  second.send(std::string(40'000, 'x'));
  second.end_sending();
  EXPECT_EQ(second.read_all().size(), 40'000U) << "all tunnels together, and equal passes";
  const Door third = door();
  ASSERT_EQ(third.code("a.test", origin.port()), EgressCode::opened);
  third.send("x");
  EXPECT_EQ(third.read_all(), "");
  const auto all = records();
  EXPECT_NE(all.at(2).reason.find("over the bound of bytes"), std::string::npos);
  EXPECT_EQ(all.at(2).bytes_out, 0U);
  EXPECT_EQ(all.at(1).reason.find("over the bound"), std::string::npos);
}

TEST_F(Gateway, SoManyBytesComeInAndNotOneMore) {
  const Origin origin(kPublicIpv4, 0,
                      [](const Stream& stream) { stream.send(std::string(1'000'000, 'x')); });
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_bytes_in = 99'999;
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(client.read_all().size(), 99'999U);
}

// -- Many --------------------------------------------------------------------------------------

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// A thousand at once, each with bytes of its own under way; idle, they hold two descriptors each
// and no pipe.
TEST_F(Gateway, ServesAThousandTunnelsWithBoundedMeans) {
  constexpr std::size_t kTunnels = 1000;
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  if (descriptors.rlim_cur < 5 * kTunnels) {
    GTEST_SKIP() << "this process may have " << descriptors.rlim_cur << " descriptors only";
  }
  // One thread for all of them.
  sys::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, kPublicIpv4, &at.sin_addr);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(listener.get(), SOMAXCONN), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const std::uint16_t port = ntohs(at.sin_port);
  allow(fmt::format("a.test:{}", port));
  serve();
  const std::size_t before = open_descriptors();
  const std::size_t resident_before = resident_bytes();
  std::list<Door> clients;
  std::list<Stream> origins;
  for (std::size_t index = 0; index < kTunnels; ++index) {
    clients.push_back(door());
    ASSERT_EQ(clients.back().code("a.test", port), EgressCode::opened) << index;
    origins.emplace_back(sys::UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  const auto text = [](std::size_t index) { return fmt::format("tunnel {:04}", index); };
  std::size_t index = 0;
  for (const Door& client : clients) client.send(text(index++));
  index = 0;
  for (const Stream& origin : origins) {
    const std::string heard = origin.read(11);
    EXPECT_EQ(heard, text(index++));
    origin.send(heard);
  }
  index = 0;
  for (const Door& client : clients) EXPECT_EQ(client.read(11), text(index++));
  // Two of a tunnel here, two of the test's, and some spare pipes.
  EXPECT_LE(open_descriptors(), before + 4 * kTunnels + 32);
  const std::size_t resident = resident_bytes() - resident_before;
  RecordProperty("resident_bytes_a_tunnel", std::to_string(resident / kTunnels));
  std::printf("%zu tunnels: %zu KiB resident, the test's own ends among them\n", kTunnels,
              resident / 1024);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(resident, kTunnels * 16 * 1024);
#endif
  std::uint64_t out = 0;
  for (const EgressRecord& record : records()) out += record.bytes_out;
  EXPECT_EQ(out, kTunnels * text(0).size()) << "no tunnel is forgotten";
}

}  // namespace
}  // namespace casemate
