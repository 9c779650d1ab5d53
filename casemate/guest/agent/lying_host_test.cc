// A host that lies or vanishes, at the other end of the guest's socket. The guest ends the
// connection, and with it everything that hung on it; it never crashes.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "casemate/guest/agent/guest_io.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/frame_bytes_test.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
namespace fs = std::filesystem;

constexpr char kId[] = "0123456789ab";

class LyingHost : public testing::Test {
 protected:
  LyingHost() {
    std::string pattern = "/dev/shm/casemate-XXXXXX";
    root_ = mkdtemp(pattern.data());
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    std::string program =
        (fs::read_symlink("/proc/self/exe").parent_path() / "plain_guest").string();
    std::string root = root_.string();
    std::array<char*, 3> argv{program.data(), root.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, far.get(), 3);
    EXPECT_EQ(posix_spawn(&guest_, program.c_str(), &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    control_ = std::move(near);
  }
  ~LyingHost() override {
    control_.reset();
    int status = 0;
    if (guest_ > 0) waitpid(guest_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_TRUE(!fs::exists(workspace()) || fs::is_empty(workspace()));
    fs::remove_all(root_);
  }

  fs::path workspace() const { return root_ / "workspace"; }
  fs::path call() const { return workspace() / kId; }

  static void say(const sys::UniqueFd& connection, std::string_view bytes,
                  std::span<const int> descriptors = {}) {
    while (!bytes.empty()) {
      bytes.remove_prefix(
          sys::send_message(connection.get(), bytes, descriptors, sys::Blocking::yes));
      descriptors = {};
    }
  }

  // The guest's next frame, or nothing when it closed; within a time that nothing honest takes.
  static std::optional<Frame> hear(const sys::UniqueFd& connection) {
    FrameReader reader(connection.get());
    while (true) {
      if (std::optional<Frame> frame = reader.next()) return frame;
      if (reader.closed()) return std::nullopt;
      std::array<pollfd, 1> entries{pollfd{connection.get(), POLLIN, 0}};
      if (sys::poll_until(entries, sys::SteadyTime::clock::now() + 20s) == 0) {
        ADD_FAILURE() << "the guest neither answers nor closes";
        return std::nullopt;
      }
    }
  }
  static bool says(const sys::UniqueFd& connection, FrameType type) {
    const std::optional<Frame> frame = hear(connection);
    return frame && is(*frame, type);
  }
  static bool closes(const sys::UniqueFd& connection) {
    while (hear(connection)) {
    }
    return !testing::Test::HasFailure();
  }

  void open_call() {
    say(control_, framed(FrameType::open_call, encode(OpenCall{kProtocolVersion, kId})));
    ASSERT_TRUE(says(control_, FrameType::call_opened));
  }

  sys::UniqueFd attach(AttachKind kind) {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    say(control_, framed(FrameType::attach, encode(kind)), std::array{far.get()});
    return std::move(near);
  }

  sys::UniqueFd start(const std::string& line, bool stdin_piped = false) {
    sys::UniqueFd connection = attach(AttachKind::exec);
    Exec request;
    request.argv = {"/bin/sh", "-c", line};
    request.directory = call() / "work";
    request.stdin_piped = stdin_piped;
    say(connection, framed(FrameType::exec, encode(request)));
    EXPECT_TRUE(says(connection, FrameType::begun));
    EXPECT_TRUE(says(connection, FrameType::started));
    return connection;
  }

  // A program that tells its pid and stays; the pidfd is readable when it is gone.
  sys::UniqueFd start_and_watch(sys::UniqueFd& connection, bool stdin_piped = false) {
    connection = start("sleep 1000 & echo $!; wait", stdin_piped);
    const std::optional<Frame> frame = hear(connection);
    const int pid = frame ? std::atoi(frame->payload.c_str()) : 0;
    sys::UniqueFd watch(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    EXPECT_TRUE(watch);
    return watch;
  }
  static bool ends(const sys::UniqueFd& process) {
    std::array<pollfd, 1> entries{pollfd{process.get(), POLLIN, 0}};
    return sys::poll_until(entries, sys::SteadyTime::clock::now() + 20s) == 1;
  }

  fs::path root_;
  pid_t guest_ = -1;
  sys::UniqueFd control_;
};

// -- Control -------------------------------------------------------------------------------------

TEST_F(LyingHost, NothingButAnOpeningOpens) {
  say(control_, framed(FrameType::close_call));
  EXPECT_TRUE(closes(control_));
}

TEST_F(LyingHost, AnOversizedFrameEndsIt) {
  say(control_, "\x01\x00\x10\0\x02\0\0\0"s);
  EXPECT_TRUE(closes(control_));
}

TEST_F(LyingHost, AnIdThatIsNoIdEndsItAndMakesNothing) {
  say(control_,
      framed(FrameType::open_call, Writer().u32(kProtocolVersion).string("../../../xyz").take()));
  EXPECT_TRUE(closes(control_));
}

TEST_F(LyingHost, AnotherVersionIsToldSo) {
  say(control_, framed(FrameType::open_call, encode(OpenCall{kProtocolVersion + 1, kId})));
  EXPECT_TRUE(says(control_, FrameType::failed));
  EXPECT_TRUE(closes(control_));
}

TEST_F(LyingHost, AnotherVersionIsToldSoWhateverElseItsHostSays) {
  say(control_, framed(FrameType::open_call,
                       Writer().u32(kProtocolVersion + 1).string("another layout").take()));
  const std::optional<Frame> answer = hear(control_);
  ASSERT_TRUE(answer && is(*answer, FrameType::failed));
  EXPECT_EQ(decode_failure(answer->payload).error, EPROTO);
  EXPECT_TRUE(closes(control_));
}

TEST_F(LyingHost, MoreDescriptorsThanAFrameMayCarryEndIt) {
  const std::vector<int> many(kMaxFrameDescriptors + 1, control_.get());
  say(control_, framed(FrameType::open_call, encode(OpenCall{kProtocolVersion, kId})), many);
  EXPECT_TRUE(closes(control_));
}

TEST_F(LyingHost, AnAttachWithoutADescriptorEndsTheCall) {
  open_call();
  EXPECT_TRUE(fs::exists(call() / "work"));
  say(control_, framed(FrameType::attach, encode(AttachKind::exec)));
  EXPECT_TRUE(closes(control_));
  EXPECT_FALSE(fs::exists(call()));
}

TEST_F(LyingHost, AnAttachWithTwoDescriptorsEndsTheCall) {
  open_call();
  const auto [first, second] = sys::socket_pair(sys::SocketType::stream);
  say(control_, framed(FrameType::attach, encode(AttachKind::exec)),
      std::array{first.get(), second.get()});
  EXPECT_TRUE(closes(control_));
  EXPECT_FALSE(fs::exists(call()));
}

TEST_F(LyingHost, AnUnknownAttachmentEndsTheCall) {
  open_call();
  say(control_, framed(FrameType::attach, "\x7f"), std::array{control_.get()});
  EXPECT_TRUE(closes(control_));
  EXPECT_FALSE(fs::exists(call()));
}

TEST_F(LyingHost, ClosingControlEndsEveryProgramAndRemovesTheDirectory) {
  open_call();
  sys::UniqueFd connection;
  const sys::UniqueFd process = start_and_watch(connection);
  control_.reset();
  EXPECT_TRUE(ends(process));
  EXPECT_EQ(waitpid(std::exchange(guest_, -1), nullptr, 0) > 0, true);
  EXPECT_FALSE(fs::exists(call()));
  guest_ = -1;
}

TEST_F(LyingHost, MoreAttachmentsThanTheBoundAreToldSo) {
  open_call();
  std::vector<sys::UniqueFd> connections;
  for (int i = 0; i < 256; ++i) connections.push_back(attach(AttachKind::files));
  const sys::UniqueFd over = attach(AttachKind::files);
  EXPECT_TRUE(says(over, FrameType::failed));
  say(connections.back(), framed(FrameType::stat_file, encode(FilePath{call(), ""})));
  EXPECT_TRUE(says(connections.back(), FrameType::entry));
}

// -- Exec ----------------------------------------------------------------------------------------

TEST_F(LyingHost, AnExecThatIsNoneEndsItsConnectionOnly) {
  open_call();
  for (const std::string& bytes :
       {framed(FrameType::cancel), framed(FrameType::exec, "x"), framed(FrameType::exec),
        "\x01\x00\x10\0\x10\0\0\0"s, "\0\0\0\0\x10\0\0\x01"s}) {
    const sys::UniqueFd connection = attach(AttachKind::exec);
    say(connection, bytes);
    EXPECT_TRUE(closes(connection));
  }
  const sys::UniqueFd good = start("exit 0");
  EXPECT_TRUE(says(good, FrameType::ended));
}

TEST_F(LyingHost, AViolationWhileAProgramRunsEndsItAndItsTree) {
  open_call();
  const std::string window(kStdinWindow, 'x');
  const std::vector<std::pair<bool, std::string>> lies{
      {false, framed(FrameType::exec)},
      {false, framed(static_cast<FrameType>(200))},
      {false, framed(FrameType::signal, "\0"s)},
      {false, framed(FrameType::signal, "\x41")},
      {false, framed(FrameType::cancel, "x")},
      {false, framed(FrameType::stdin_data, "x")},
      {false, framed(FrameType::stdin_end)},
      {true, framed(FrameType::stdin_end) + framed(FrameType::stdin_data, "x")},
      {true, framed(FrameType::stdin_data, "")},
      {true, framed(FrameType::stdin_data, std::string(kMaxData + 1, 'x'))},
      {false, "\xff\xff\xff\xff\x15\0\0\0"s},
  };
  for (std::size_t i = 0; i < lies.size(); ++i) {
    SCOPED_TRACE(i);
    sys::UniqueFd connection;
    const sys::UniqueFd process = start_and_watch(connection, lies[i].first);
    say(connection, lies[i].second);
    EXPECT_TRUE(ends(process));
    EXPECT_TRUE(closes(connection));
  }
}

// The pipe takes 64 KiB and the guest a window; one byte more than that is a lie.
TEST_F(LyingHost, InputBeyondTheWindowIsAViolation) {
  open_call();
  sys::UniqueFd connection;
  const sys::UniqueFd process = start_and_watch(connection, true);
  const std::string piece = framed(FrameType::stdin_data, std::string(kMaxData, 'x'));
  std::size_t taken = 0;
  for (int i = 0; i < 3; ++i) say(connection, piece);
  // What it gives back is what the pipe holds.
  while (taken < kMaxData) taken += decode_stdin_taken(hear(connection)->payload);
  EXPECT_EQ(taken, kMaxData);
  try {
    say(connection, framed(FrameType::stdin_data, "x"));
    EXPECT_TRUE(ends(process));
    EXPECT_TRUE(closes(connection));
  } catch (const std::system_error&) {
    FAIL() << "it ended before the bound";
  }
}

TEST_F(LyingHost, ClosingAnExecConnectionEndsItsTreeAndNothingElse) {
  open_call();
  sys::UniqueFd first;
  sys::UniqueFd second;
  const sys::UniqueFd process = start_and_watch(first);
  const sys::UniqueFd bystander = start_and_watch(second);
  first.reset();
  EXPECT_TRUE(ends(process));
  pollfd entry{bystander.get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  say(control_, framed(FrameType::close_call));
  const std::optional<Frame> answer = hear(control_);
  ASSERT_TRUE(answer && is(*answer, FrameType::call_closed));
  EXPECT_TRUE(decode_call_closed(answer->payload).known);
  EXPECT_TRUE(ends(bystander));
}

TEST_F(LyingHost, AClosingAfterWaitsForWhatIsAttachedAndForNothingElse) {
  open_call();
  sys::UniqueFd connection;
  const sys::UniqueFd process = start_and_watch(connection);
  const sys::UniqueFd files = attach(AttachKind::files);
  say(control_, framed(FrameType::close_after));
  connection.reset();
  EXPECT_TRUE(ends(process));
  pollfd entry{control_.get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 200), 0) << "the files' connection is open";
  say(files, framed(FrameType::stat_file, encode(FilePath{call(), "work"})));
  EXPECT_TRUE(says(files, FrameType::entry));
  sys::shut_down(files.get());
  const std::optional<Frame> answer = hear(control_);
  ASSERT_TRUE(answer && is(*answer, FrameType::call_closed));
  EXPECT_TRUE(decode_call_closed(answer->payload).known);
  EXPECT_TRUE(closes(control_));
}

TEST_F(LyingHost, AfterAClosingAfterOnlyAClosingIsHeard) {
  open_call();
  sys::UniqueFd connection;
  const sys::UniqueFd process = start_and_watch(connection);
  say(control_, framed(FrameType::close_after) + framed(FrameType::close_call));
  const std::optional<Frame> answer = hear(control_);
  ASSERT_TRUE(answer && is(*answer, FrameType::call_closed));
  EXPECT_TRUE(ends(process));
}

TEST_F(LyingHost, AttachingAfterAClosingAfterEndsTheCall) {
  open_call();
  sys::UniqueFd connection;
  const sys::UniqueFd process = start_and_watch(connection);
  say(control_, framed(FrameType::close_after));
  const sys::UniqueFd late = attach(AttachKind::exec);
  EXPECT_TRUE(closes(late));
  EXPECT_TRUE(ends(process));
  EXPECT_TRUE(closes(control_));
}

TEST_F(LyingHost, BegunComesBeforeAnythingOfTheProgramExists) {
  open_call();
  const sys::UniqueFd connection = attach(AttachKind::exec);
  Exec request;
  request.argv = {"no-such-program"};
  request.directory = call();
  say(connection, framed(FrameType::exec, encode(request)));
  EXPECT_TRUE(says(connection, FrameType::begun));
  const std::optional<Frame> answer = hear(connection);
  ASSERT_TRUE(answer && is(*answer, FrameType::failed));
  EXPECT_EQ(decode_failure(answer->payload).error, ENOENT);
  EXPECT_TRUE(closes(connection));
}

// -- Files ---------------------------------------------------------------------------------------

// FO-07: nothing of a file that is too large is even sent.
TEST_F(LyingHost, FO_07_AFileOverTheCapIsRefusedByItsSize) {
  open_call();
  std::ofstream(call() / "big") << "x";
  fs::resize_file(call() / "big", std::uintmax_t{1} << 40);
  const sys::UniqueFd connection = attach(AttachKind::files);
  say(connection, framed(FrameType::read_file, encode(ReadFile{{call(), "big"}, 1 << 20})));
  const std::optional<Frame> answer = hear(connection);
  ASSERT_TRUE(answer && is(*answer, FrameType::failed));
  EXPECT_EQ(decode_failure(answer->payload).reason, FailureReason::over_cap);
}

TEST_F(LyingHost, AFileRequestThatIsNoneEndsItsConnectionOnly) {
  open_call();
  const std::string header = framed(FrameType::write_file, encode(WriteFile{{call(), "f"}, 4}));
  const auto path = [&](const std::string& text) {
    return Writer().string(call().string()).string(text).take();
  };
  const std::vector<std::string> lies{
      framed(FrameType::data, "x"),
      framed(FrameType::exec),
      framed(FrameType::stat_file, path("../x")),
      framed(FrameType::stat_file, path("/etc/passwd")),
      framed(FrameType::stat_file, path("a//b")),
      framed(FrameType::stat_file, path("a\0b"s)),
      framed(FrameType::stat_file, path(std::string(kMaxPath, 'a'))),
      framed(FrameType::list_directory, Writer().string("relative").string("").take()),
      framed(FrameType::remove_file, path("f") + "\x02"),
      header + framed(FrameType::data, "12345"),  // more than was announced
      header + framed(FrameType::data, "1234") + framed(FrameType::data, "5"),
      header + framed(FrameType::data, "123") + framed(FrameType::end),  // less
      header + framed(FrameType::data, ""),
      header + framed(FrameType::stat_file, path("f")),
      header + framed(FrameType::data, "12").substr(0, 9),  // and then nothing more
  };
  for (std::size_t i = 0; i < lies.size(); ++i) {
    SCOPED_TRACE(i);
    const sys::UniqueFd connection = attach(AttachKind::files);
    say(connection, lies[i]);
    if (i + 1 == lies.size()) shutdown(connection.get(), SHUT_WR);
    EXPECT_TRUE(closes(connection));
  }
  EXPECT_FALSE(fs::exists(call() / "f"));
  const sys::UniqueFd good = attach(AttachKind::files);
  say(good, framed(FrameType::stat_file, path("")));
  EXPECT_TRUE(says(good, FrameType::entry));
}

}  // namespace
}  // namespace casemate::guest
