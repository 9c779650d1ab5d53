#include "casemate/sys/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
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

TEST(Socket, AFullSocketTakesNothingWithoutBlocking) {
  auto [left, right] = socket_pair(SocketType::stream);
  const std::vector<char> block(64 * 1024);
  while (send_message(left.get(), block, {}, Blocking::no) != 0) {
  }
  EXPECT_EQ(send_message(left.get(), block, {}, Blocking::no), 0U);
}

}  // namespace
}  // namespace casemate::sys
