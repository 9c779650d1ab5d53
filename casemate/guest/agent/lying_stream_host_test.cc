// A host that lies or vanishes at the other end of the guest's stream. The guest ends, with it all
// that hung on it, and nothing stays behind; it never crashes.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "casemate/guest/frame_bytes_test.h"
#include "casemate/guest/protocol.h"
#include "casemate/guest/stream/message_bytes_test.h"
#include "casemate/guest/stream/multiplexer.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/support/stream_process.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
namespace fs = std::filesystem;

constexpr int kOpen = 2;
constexpr int kData = 3;
constexpr int kEnd = 5;
constexpr int kStop = 6;
constexpr int kGoodbye = 7;

std::string opening(ChannelId channel, ChannelKind kind, ChannelId related = 0) {
  return message(channel, kOpen, Writer().u8(static_cast<std::uint8_t>(kind)).u32(related).take());
}
std::string hello(std::uint32_t version = kStreamVersion) {
  return message(0, 1, "casemate" + Writer().u32(version).u32(kMaxStreamChannels).take());
}
std::string open_call(bool host_tools = false) {
  return framed(FrameType::open_call,
                encode(OpenCall{
                    .version = kProtocolVersion, .id = "0123456789ab", .host_tools = host_tools}));
}
std::string exec(const fs::path& root, const std::string& line) {
  Exec request;
  request.argv = {"/bin/sh", "-c", line};
  request.directory = root / "workspace/0123456789ab/work";
  return framed(FrameType::exec, encode(request));
}

// One guest, raw.
class Guest {
 public:
  Guest() {
    std::string pattern = "/dev/shm/casemate-XXXXXX";
    root_ = mkdtemp(pattern.data());
    process_.emplace(test_programs() / "plain_guest", std::vector<std::string>{root_, "stream"},
                     StreamForm::socket);
    end_ = process_->take_end();
  }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
  ~Guest() { hang_up(); }

  const fs::path& root() const { return root_; }

  void say(std::string_view bytes) {
    try {
      while (!bytes.empty()) {
        bytes.remove_prefix(sys::send_message(end_.out.get(), bytes, {}, sys::Blocking::yes));
      }
    } catch (const std::system_error&) {
      // The guest hung up.
    }
  }
  // Waits until it has said that; false when it ended first.
  bool says(std::string_view what) {
    while (heard_.find(what) == std::string::npos) {
      std::array<pollfd, 1> entries{pollfd{end_.in.get(), POLLIN, 0}};
      if (sys::poll_until(entries, sys::SteadyTime::clock::now() + 60s) == 0) return false;
      std::string buffer(64 * 1024, '\0');
      const auto got = sys::receive_bytes(end_.in.get(), buffer, sys::Blocking::no);
      if (got.bytes == 0) return false;
      heard_.append(buffer, 0, got.bytes);
    }
    return true;
  }
  // Says nothing more and expects that the guest ends by itself, with that status and nothing left.
  void hang_up(int status = 1) {
    if (!process_) return;
    end_ = {};
    expect_end(status);
  }
  void expect_end(int status) {
    const int ended = process_->wait();
    EXPECT_TRUE(WIFEXITED(ended)) << ended;
    EXPECT_EQ(WEXITSTATUS(ended), status);
    process_.reset();
    EXPECT_TRUE(!fs::exists(root_ / "workspace") || fs::is_empty(root_ / "workspace"));
    fs::remove_all(root_);
  }

 private:
  fs::path root_;
  std::optional<StreamProcess> process_;
  StreamEnd end_;
  std::string heard_;
};

TEST(LyingHostOfAStream, OfNoHelloOrAnotherVersionIsLeft) {
  for (const std::string& first :
       {"GET / HTTP/1.1\r\n\r\n"s, hello(kStreamVersion + 1), opening(1, ChannelKind::control)}) {
    Guest guest;
    guest.say(first);
    guest.expect_end(1);
  }
}

TEST(LyingHostOfAStream, ThatBreaksARuleIsLeft) {
  for (const std::string& lie : {
           opening(1, ChannelKind::stream),
           opening(2, ChannelKind::control),
           opening(kGuestFirst, ChannelKind::control),
           message(1, kData, "x"),
           opening(1, ChannelKind::control) + opening(2, ChannelKind::listener, 1) +
               message(2, kData, "x"),
           opening(1, ChannelKind::control) + message(1, kEnd) + message(1, kData, "x"),
           hello(),
       }) {
    Guest guest;
    guest.say(hello() + lie);
    guest.expect_end(1);
  }
}

TEST(LyingHostOfAStream, ThatHasMoreTravelThanAFrameCarriesIsLeft) {
  Guest guest;
  std::string bytes = hello() + opening(1, ChannelKind::control);
  for (ChannelId i = 0; i < kMaxFrameDescriptors + 1; ++i) {
    bytes += opening(2 + i, ChannelKind::stream, 1);
  }
  guest.say(bytes);
  guest.expect_end(1);
}

TEST(LyingHostOfAStream, ThatOpensMoreThanItMayIsLeft) {
  Guest guest;
  guest.say(hello());
  for (ChannelId i = 1; i <= kMaxStreamChannels + 1; ++i) {
    guest.say(opening(i, ChannelKind::control));
  }
  guest.expect_end(1);
}

TEST(LyingHostOfAStream, ACallThatBreaksTheProtocolEndsAloneAndOthersStay) {
  Guest guest;
  guest.say(hello() + opening(1, ChannelKind::control) + message(1, kData, "nonsense"));
  // Its end of the connection, and that it takes no more.
  EXPECT_TRUE(guest.says(message(1, kEnd)));
  guest.say(opening(2, ChannelKind::control) + message(2, kData, open_call()));
  EXPECT_TRUE(guest.says(framed(FrameType::call_opened).substr(4, 4)));
  guest.say(message(0, kGoodbye));
  guest.expect_end(0);
}

// A whole conversation, cut anywhere: the guest, its call and its program end.
TEST(LyingHostOfAStream, ThatVanishesAtAnyByteLeavesNothing) {
  std::string said;
  const auto conversation = [&](const fs::path& root) {
    return hello() + opening(1, ChannelKind::control) + opening(2, ChannelKind::listener, 1) +
           message(1, kData, open_call(/*host_tools=*/true)) + opening(3, ChannelKind::stream, 1) +
           message(1, kData, framed(FrameType::attach, encode(AttachKind::exec))) +
           message(3, kData, exec(root, "sleep 1000 & sleep 1000"));
  };
  const std::size_t size = conversation("/dev/shm/casemate-XXXXXX").size();
  for (std::size_t cut = 0; cut <= size; cut += 7) {
    Guest guest;
    guest.say(conversation(guest.root()).substr(0, cut));
    guest.hang_up();
  }
  Guest guest;
  guest.say(conversation(guest.root()));
  // The program runs.
  EXPECT_TRUE(guest.says(framed(FrameType::begun)));
  EXPECT_TRUE(guest.says(framed(FrameType::started)));
  guest.hang_up();
}

TEST(LyingHostOfAStream, ThatReadsNothingIsLeftWhenItGoes) {
  Guest guest;
  guest.say(hello() + opening(1, ChannelKind::control) + message(1, kData, open_call()) +
            opening(2, ChannelKind::stream, 1) +
            message(1, kData, framed(FrameType::attach, encode(AttachKind::exec))) +
            message(2, kData, exec(guest.root(), "yes")));
  EXPECT_TRUE(guest.says("y\ny\n"));
  // From now on nothing; what the guest takes in stays bounded, and it still hears.
  guest.say(message(2, kStop) + message(2, kEnd));
  guest.hang_up();
}

}  // namespace
}  // namespace casemate::guest
