// Guests that lie, stall or vanish at the other end of a stream.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/guest/stream/awaited_socket_test.h"
#include "casemate/guest/stream/echo_server_test.h"
#include "casemate/guest/stream/message_bytes_test.h"
#include "casemate/guest/stream/multiplexed_stream.h"
#include "casemate/guest/stream/multiplexer.h"
#include "casemate/sys/socket.h"
#include "tests/support/expect_refusal.h"

namespace casemate::guest {
namespace {

std::string number(std::uint32_t value) { return Writer().u32(value).take(); }
std::string hello(std::uint32_t version = kStreamVersion, std::uint32_t channels = 8) {
  return message(0, 1, "casemate" + number(version) + number(channels));
}
std::string connection_to(ChannelId listener) {
  return Writer().u8(static_cast<std::uint8_t>(ChannelKind::stream)).u32(listener).take();
}

class LyingGuestOfAStream : public testing::Test {
 protected:
  LyingGuestOfAStream() {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    guest_ = std::move(far);
    stream_.emplace(StreamEnd::of(std::move(near)),
                    MultiplexedStreamOptions{.id = "0123456789abcdef",
                                             .log = [this](LogLevel, std::string_view text) {
                                               const std::lock_guard lock(mutex_);
                                               log_ += text;
                                             }});
  }

  void say(std::string_view bytes) {
    try {
      while (!bytes.empty()) {
        bytes.remove_prefix(sys::send_message(guest_.get(), bytes, {}, sys::Blocking::yes));
      }
    } catch (const std::system_error&) {
      // The host hung up.
    }
  }
  // Waits until the host has given the stream up.
  void expect_given_up(std::string_view why) {
    EXPECT_TRUE(has_ended(guest_));
    while (stream_->alive()) std::this_thread::yield();
    stream_->close();
    EXPECT_FALSE(stream_->alive());
    expect_refusal<SandboxUnavailable>([&] { stream_->connect({}); }, "");
    const std::lock_guard lock(mutex_);
    EXPECT_NE(log_.find(why), std::string::npos) << log_;
  }
  // A control connection and its call with a server's socket: channels 1 and 2.
  void open_call(int server) {
    control_ = stream_->connect({});
    OpenCall request{.version = kProtocolVersion, .id = "0123456789ab", .host_tools = true};
    FrameWriter writer(control_.get());
    writer.put(wire(FrameType::open_call), encode(request), std::array{server});
    ASSERT_TRUE(writer.flush());
    // Until both are opened, and the frame is there: 2 openings and some data.
    std::string heard;
    const std::string opened = message(2, 2, Writer().u8(2).u32(1).take());
    while (heard.find(opened) == std::string::npos) {
      std::string buffer(4096, '\0');
      await_readable(guest_.get());
      heard += buffer.substr(0, sys::receive_bytes(guest_.get(), buffer, sys::Blocking::no).bytes);
    }
  }

  std::mutex mutex_;
  std::string log_;
  sys::UniqueFd guest_;
  sys::UniqueFd control_;
  std::optional<MultiplexedStream> stream_;
};

TEST_F(LyingGuestOfAStream, ThatNeverAnswersIsWaitedForUntilTheDeadline) {
  EXPECT_THROW(stream_->await_ready({.deadline = std::chrono::steady_clock::now(), .stop = {}}),
               SandboxTimeout);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(stream_->connect({.deadline = {}, .stop = stop.get_token()}), SandboxCancelled);
}

TEST_F(LyingGuestOfAStream, ThatSaysSomethingElseFirstIsNamed) {
  say("SeaBIOS (version 1.16)\r\n");
  expect_given_up("broke the protocol");
}

TEST_F(LyingGuestOfAStream, OfAnotherVersionIsOfAnotherBuild) {
  say(hello(kStreamVersion + 1));
  EXPECT_TRUE(has_ended(guest_));
  expect_refusal<SandboxUnavailable>([&] { stream_->await_ready({}); }, "another build");
}

TEST_F(LyingGuestOfAStream, ThatVanishesAtAnyByteIsTheEnd) {
  const std::string said = hello() + message(1, 3, "data") + message(1, 5);
  for (std::size_t cut = 0; cut <= said.size(); ++cut) {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    MultiplexedStream stream(StreamEnd::of(std::move(near)), {});
    sys::UniqueFd control;
    if (cut >= hello().size()) {
      sys::send_message(far.get(), hello(), {}, sys::Blocking::yes);
      control = stream.connect({});
      // Opened, so that what follows is of a channel.
      std::string buffer(hello().size() + message(1, 2, connection_to(0)).size(), '\0');
      for (std::size_t got = 0; got < buffer.size();) {
        await_readable(far.get());
        got += sys::receive_bytes(far.get(), buffer, sys::Blocking::no).bytes;
      }
      if (cut > hello().size()) {
        sys::send_message(far.get(), said.substr(hello().size(), cut - hello().size()), {},
                          sys::Blocking::yes);
      }
    } else if (cut > 0) {
      sys::send_message(far.get(), said.substr(0, cut), {}, sys::Blocking::yes);
    }
    far.reset();
    while (stream.alive()) std::this_thread::yield();
    EXPECT_THROW(stream.connect({}), SandboxUnavailable) << cut;
    EXPECT_TRUE(!control || has_ended(control)) << cut;
  }
}

TEST_F(LyingGuestOfAStream, ThatStopsReadingForGoodIsTheEndAtTheNextWrite) {
  std::array<int, 2> to_guest{};
  std::array<int, 2> to_host{};
  ASSERT_EQ(pipe2(to_guest.data(), O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(to_host.data(), O_CLOEXEC), 0);
  sys::UniqueFd guest_in(to_guest[0]);
  const sys::UniqueFd guest_out(to_host[1]);
  MultiplexedStream stream({sys::UniqueFd(to_host[0]), sys::UniqueFd(to_guest[1])}, {});
  ASSERT_EQ(write(guest_out.get(), hello().data(), hello().size()),
            static_cast<ssize_t>(hello().size()));
  stream.await_ready({});
  guest_in.reset();
  EXPECT_TRUE(has_ended(stream.connect({})));
  EXPECT_THROW(stream.connect({}), SandboxUnavailable);
}

TEST_F(LyingGuestOfAStream, ThatSaysGoodbyeIsGone) {
  say(hello() + message(0, 7));
  expect_given_up("goodbye");
}

TEST_F(LyingGuestOfAStream, ThatOpensChannelsToNothingIsGivenUp) {
  say(hello() + message(kGuestFirst, 2, connection_to(2)));
  expect_given_up("no listener");
}

TEST_F(LyingGuestOfAStream, ThatSendsBeyondItsCreditIsGivenUp) {
  say(hello());
  const sys::UniqueFd control = stream_->connect({});
  std::string buffer(hello().size() + message(1, 2, connection_to(0)).size(), '\0');
  for (std::size_t got = 0; got < buffer.size();) {
    await_readable(guest_.get());
    got += sys::receive_bytes(guest_.get(), buffer, sys::Blocking::no).bytes;
  }
  // Nobody reads the connection: what its socket takes and the window, and no more.
  for (int i = 0; i < 200; ++i) say(message(1, 3, std::string(kMaxStreamPayload, 'x')));
  expect_given_up("credit");
}

TEST_F(LyingGuestOfAStream, ThatOpensMoreConnectionsThanItMayIsGivenUp) {
  say(hello());
  EchoServer server;
  open_call(server.socket());
  server.serve();
  for (ChannelId i = 0; i < kMaxStreamChannels + 1; ++i) {
    say(message(kGuestFirst + i, 2, connection_to(2)));
  }
  expect_given_up("more channels");
  EXPECT_LE(server.served(), std::size_t{kMaxStreamChannels});
}

TEST_F(LyingGuestOfAStream, ThatFloodsWithoutReadingIsGivenUp) {
  say(hello());
  const sys::UniqueFd never_listens = sys::make_stream_socket();
  open_call(never_listens.get());
  // Each is refused, which it would have to read.
  for (ChannelId i = 0; i < 200'000; ++i) {
    say(message(kGuestFirst + i, 2, connection_to(2)) + message(kGuestFirst + i, 5));
    if (!stream_->alive()) break;
  }
  expect_given_up("does not read");
}

TEST_F(LyingGuestOfAStream, ThatDoesNotReadDoesNotHoldUpItsClose) {
  say(hello());
  std::vector<sys::UniqueFd> connections;
  for (int i = 0; i < 8; ++i) {
    connections.push_back(stream_->connect({}));
    FrameWriter writer(connections.back().get());
    writer.put(1, std::string(kMaxPayload, 'x'));
    writer.flush();
  }
  // More are refused here already.
  expect_refusal<SandboxUnavailable>([&] { stream_->connect({}); }, "8 connections");
  stream_->close();
  for (const sys::UniqueFd& each : connections) EXPECT_TRUE(has_ended(each));
}

}  // namespace
}  // namespace casemate::guest
