#include "casemate/sys/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>

namespace casemate::sys {
namespace {

TEST(Socket, DescriptorsTravelWithTheFirstByteAndAreCloseOnExec) {
  auto [left, right] = socket_pair(SocketType::stream);
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::array<int, 2> sent{null.get(), left.get()};
  EXPECT_EQ(send_message(left.get(), std::string_view("ab"), sent, Blocking::yes), 2U);
  std::array<char, 1> one{};
  ReceivedMessage first = receive_message(right.get(), one, Blocking::no);
  ASSERT_EQ(first.descriptors.size(), 2U);
  EXPECT_EQ(first.bytes, 1U);
  EXPECT_FALSE(first.truncated);
  EXPECT_NE(fcntl(first.descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  const ReceivedMessage second = receive_message(right.get(), one, Blocking::no);
  EXPECT_TRUE(second.descriptors.empty());
  EXPECT_EQ(second.bytes, 1U);
}

TEST(Socket, MoreDescriptorsThanTheBoundAreRefused) {
  auto [left, right] = socket_pair(SocketType::stream);
  const std::vector<int> most(kMaxDescriptorsPerMessage, left.get());
  EXPECT_EQ(send_message(left.get(), std::string_view("a"), most, Blocking::yes), 1U);
  std::array<char, 8> buffer{};
  EXPECT_EQ(receive_message(right.get(), buffer, Blocking::no).descriptors.size(), most.size());
  const std::vector<int> over(kMaxDescriptorsPerMessage + 1, left.get());
  EXPECT_THROW(send_message(left.get(), std::string_view("a"), over, Blocking::yes),
               std::invalid_argument);
}

TEST(Socket, SendingToAClosedPeerThrowsAndRaisesNoSignal) {
  auto [left, right] = socket_pair(SocketType::stream);
  right.reset();
  try {
    send_message(left.get(), std::string_view("a"), {}, Blocking::yes);
    FAIL() << "nothing thrown";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EPIPE);
  }
}

TEST(Socket, AnEmptySocketWouldBlockAndAClosedOneReadsAsNothing) {
  auto [left, right] = socket_pair(SocketType::stream);
  std::array<char, 8> buffer{};
  EXPECT_TRUE(receive_message(right.get(), buffer, Blocking::no).would_block);
  left.reset();
  const ReceivedMessage closed = receive_message(right.get(), buffer, Blocking::no);
  EXPECT_FALSE(closed.would_block);
  EXPECT_EQ(closed.bytes, 0U);
}

TEST(Socket, WhatAPeerSaidBeforeItEndedWithSomethingUnreadIsHeard) {
  for (const SocketType type : {SocketType::stream, SocketType::seqpacket}) {
    for (const Blocking blocking : {Blocking::yes, Blocking::no}) {
      auto [ours, theirs] = socket_pair(type);
      send_message(ours.get(), std::string_view("unread"), {}, Blocking::yes);
      send_message(theirs.get(), std::string_view("message"), {}, Blocking::yes);
      theirs.reset();
      std::array<char, 7> buffer{};
      EXPECT_EQ(receive_message(ours.get(), buffer, blocking).bytes, buffer.size());
      EXPECT_EQ(std::string_view(buffer.data(), buffer.size()), "message");
      const ReceivedMessage closed = receive_message(ours.get(), buffer, blocking);
      EXPECT_FALSE(closed.would_block);
      EXPECT_EQ(closed.bytes, 0U);
    }
    auto [ours, theirs] = socket_pair(type);
    send_message(ours.get(), std::string_view("unread"), {}, Blocking::yes);
    send_message(theirs.get(), std::string_view("bytes"), {}, Blocking::yes);
    theirs.reset();
    std::array<char, 5> buffer{};
    EXPECT_EQ(receive_bytes(ours.get(), buffer, Blocking::yes).bytes, buffer.size());
    EXPECT_EQ(receive_bytes(ours.get(), buffer, Blocking::yes).bytes, 0U);
  }
}

TEST(Socket, AFullSocketTakesNothingWithoutBlocking) {
  auto [left, right] = socket_pair(SocketType::stream);
  const std::vector<char> block(64 * 1024);
  while (send_message(left.get(), block, {}, Blocking::no) != 0) {
  }
  EXPECT_EQ(send_message(left.get(), block, {}, Blocking::no), 0U);
}

TEST(Socket, TakesConnectionsWhereItWasBound) {
  const UniqueFd listening = make_stream_socket();
  const std::string name = bind_to_fresh_name(listening.get());
  EXPECT_EQ(name.front(), '\0');
  EXPECT_THROW(connect_to_address(name), std::system_error) << "nobody listens yet";
  start_listening(listening.get());
  EXPECT_FALSE(accept_connection(listening.get()));
  const UniqueFd near = connect_to_address(name);
  const UniqueFd far = accept_connection(listening.get());
  ASSERT_TRUE(far);
  send_message(near.get(), std::array{'x'}, {}, Blocking::yes);
  std::array<char, 4> buffer{};
  EXPECT_EQ(receive_bytes(far.get(), buffer, Blocking::yes).bytes, 1U);
  EXPECT_TRUE(receive_bytes(far.get(), buffer, Blocking::no).would_block);
  shut_down(near.get());
  const ReceivedBytes end = receive_bytes(far.get(), buffer, Blocking::yes);
  EXPECT_TRUE(end.bytes == 0 && !end.would_block);
}

TEST(Socket, TriesToSendAValueAndSaysWhyItDidNotGo) {
  auto [near, far] = socket_pair(SocketType::seqpacket);
  EXPECT_TRUE(try_send_value(near.get(), 42));
  int got = 0;
  EXPECT_EQ(read(far.get(), &got, sizeof got), static_cast<ssize_t>(sizeof got));
  EXPECT_EQ(got, 42);
  far.reset();
  EXPECT_FALSE(try_send_value(near.get(), 42));
  EXPECT_EQ(errno, EPIPE);
}

TEST(Socket, RefusesAPathThatIsTooLongOrTaken) {
  const UniqueFd socket = make_stream_socket();
  EXPECT_THROW(bind_to_path(socket.get(), "/tmp/" + std::string(103, 'x')), std::system_error);
  EXPECT_THROW(bind_to_path(socket.get(), "/tmp"), std::system_error);
  EXPECT_THROW(bind_to_path(socket.get(), ""), std::system_error);
}

TEST(Socket, ABlockingReceiveWaitsNoLongerThanItsPatience) {
  const auto [near, far] = socket_pair(SocketType::stream);
  make_blocking(near.get(), std::chrono::milliseconds(1));
  std::array<char, 8> buffer;
  EXPECT_TRUE(receive_bytes(near.get(), buffer, Blocking::yes).would_block);
  send_message(far.get(), std::string_view("abc"), {}, Blocking::yes);
  EXPECT_EQ(receive_bytes(near.get(), buffer, Blocking::yes).bytes, 3U);
}

}  // namespace
}  // namespace casemate::sys
