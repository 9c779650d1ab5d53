// That what is compared before and after a life would show what is left: one of each kind is.

#include "tests/soak/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include <filesystem>
#include <string>
#include <utility>

#include "casemate/sys/socket.h"
#include "casemate/sys/tcp.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/own_network.h"
#include "tests/support/scratch.h"

namespace casemate::soak {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class InventoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!OwnNetwork::why_not().empty()) GTEST_SKIP() << OwnNetwork::why_not();
  }
  Inventory now() const { return take_inventory(Namespaces::own, {scratch_.path()}); }
  // Since the test began; what was told is not told again.
  std::string news() {
    Inventory after = now();
    const std::string text = differences(before_, after);
    before_ = std::move(after);
    return text;
  }

  Scratch scratch_;
  Inventory before_ = now();
};

TEST_F(InventoryTest, ShowsNothingWhereNothingIsLeft) {
  {
    const auto pair = sys::socket_pair(sys::SocketType::stream);
    put(scratch_ / "sandboxes/one/record.json", "x");
    std::filesystem::remove_all(scratch_ / "sandboxes");
  }
  EXPECT_EQ(news(), "");
}

TEST_F(InventoryTest, ShowsAFileADirectoryAndASocketsFileButNoLock) {
  put(scratch_ / "locks/00f.lock", "");
  EXPECT_EQ(news(), "left: file " + (scratch_ / "locks").native() + "\n");
  put(scratch_ / "locks/010.lock", "");
  EXPECT_EQ(news(), "");
  put(scratch_ / "snapshots/0123", "x");
  EXPECT_THAT(news(), AllOf(HasSubstr("/snapshots\n"), HasSubstr("/snapshots/0123\n")));
  sys::UniqueFd socket = sys::make_stream_socket();
  sys::bind_to_path(socket.get(), scratch_ / "lease.sock");
  EXPECT_THAT(news(), AllOf(HasSubstr("left: file "), HasSubstr("left: socket "),
                            HasSubstr("left: descriptor ")));
  socket.reset();
  EXPECT_THAT(news(), Not(HasSubstr("missing: file")));
}

TEST_F(InventoryTest, ShowsAMountButNotItsEnd) {
  ASSERT_EQ(mount("tmpfs", scratch_.path().c_str(), "tmpfs", 0, "size=64k"), 0);
  EXPECT_THAT(news(), AllOf(StartsWith("left: mount "), HasSubstr(scratch_.path().native())));
  ASSERT_EQ(umount2(scratch_.path().c_str(), MNT_DETACH), 0);
  EXPECT_EQ(news(), "");
}

// Of which no process has a descriptor, and no directory a name.
TEST_F(InventoryTest, ShowsASocketThatIsInAMessageOnly) {
  const auto [sender, receiver] = sys::socket_pair(sys::SocketType::stream);
  static_cast<void>(news());
  {
    const sys::UniqueFd travels = sys::make_stream_socket();
    const int descriptor = travels.get();
    sys::send_message(sender.get(), "x", {&descriptor, 1}, sys::Blocking::yes);
  }
  EXPECT_THAT(news(), AllOf(StartsWith("left: socket "), HasSubstr(" of unix "),
                            Not(HasSubstr("descriptor"))));
}

TEST_F(InventoryTest, ShowsAConnectionAsLongAsSomebodyHasAnEndOfItAndNoLonger) {
  const sys::LoopbackListener listener = sys::listen_on_loopback();
  static_cast<void>(news());
  {
    const sys::UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(listener.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    sys::UniqueFd served = sys::accept_connection(listener.socket.get());
    EXPECT_THAT(news(), HasSubstr(" of tcp "));
    served.reset();
    EXPECT_THAT(news(), AllOf(HasSubstr("missing: socket "), Not(HasSubstr("left: "))));
  }
  // The kernel alone still has the end that was closed first, in TIME_WAIT.
  EXPECT_THAT(news(), AllOf(HasSubstr("missing: socket "), Not(HasSubstr("left: "))));
}

}  // namespace
}  // namespace casemate::soak
