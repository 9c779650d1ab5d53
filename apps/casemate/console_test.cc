#include "apps/casemate/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stop_token>
#include <thread>

#include "casemate/sys/unique_fd.h"
#include "casemate/sys/without_call_test.h"

namespace casemate::app {
namespace {

using ::testing::HasSubstr;

std::pair<sys::UniqueFd, sys::UniqueFd> make_pipe(int flags) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(::pipe2(ends.data(), flags), 0);
  return {sys::UniqueFd(ends[0]), sys::UniqueFd(ends[1])};
}

std::string read_to_end(int fd) {
  std::string all;
  std::array<char, 65536> piece;
  for (ssize_t count = 0; (count = ::read(fd, piece.data(), piece.size())) > 0;) {
    all.append(piece.data(), static_cast<std::size_t>(count));
  }
  return all;
}

class Console : public ::testing::Test {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
};

TEST_F(Console, AClosedReaderIsNoFailure) {
  auto [read_end, write_end] = make_pipe(O_CLOEXEC);
  read_end.reset();
  EXPECT_THROW(write_all(write_end.get(), "x"), OutputClosed);
  EXPECT_THROW(write_all(-1, "x"), OutputClosed);
}

TEST_F(Console, AFullDiskIsNamed) {
  const sys::UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  try {
    write_all(full.get(), "x");
    FAIL();
  } catch (const OutputFailed& failed) {
    EXPECT_THAT(failed.message(), HasSubstr("No space left on device"));
  }
}

// As a file on FUSE may: without the check this would try again for ever.
TEST_F(Console, AFileThatTakesNothingIsNamed) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself looks at memory by writing it somewhere";
#endif
  const sys::UniqueFd file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  std::string message;
  sys::without_call(SYS_write, 0, 0, [&] {
    try {
      write_all(file.get(), "x");
    } catch (const OutputFailed& failed) {
      message = failed.message();
    }
  });
  EXPECT_THAT(message, HasSubstr("Input/output error"));
}

TEST_F(Console, WritesEverythingToANonBlockingPipe) {
  auto [read_end, write_end] = make_pipe(O_CLOEXEC);
  ASSERT_EQ(::fcntl(write_end.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string text(1'000'000, 'x');
  std::string seen;
  std::thread reader([&seen, fd = read_end.get()] { seen = read_to_end(fd); });
  write_all(write_end.get(), text);
  write_end.reset();
  reader.join();
  EXPECT_EQ(seen, text);
}

TEST_F(Console, ShowsControlsInsteadOfObeyingThem) {
  EXPECT_EQ(show_controls("a\tb\r\n"), "a\tb\r\n");
  EXPECT_EQ(show_controls("\x1b[2J\x07\x7f"), "^[[2J^G^?");
  EXPECT_EQ(show_controls(std::string_view("\0", 1)), "^@");
  EXPECT_EQ(show_controls("\xc2\x9b"
                          "2J\xc2\xa0\xe2\x82\xac"),
            "\\x9b2J\xc2\xa0\xe2\x82\xac");
  EXPECT_EQ(show_controls("\xc2"), "\xc2");
}

TEST_F(Console, PassesBytesUnchangedToAPipe) {
  auto [read_end, write_end] = make_pipe(O_CLOEXEC);
  GuestStream stream(write_end.get(), {});
  const std::string bytes("\x1b[2J\xff\0\xe2\x82", 8);
  stream.write(bytes);
  stream.finish();
  write_end.reset();
  EXPECT_EQ(read_to_end(read_end.get()), bytes);
}

TEST_F(Console, StopsWaitingForAReaderOnceAStopIsRequested) {
  auto [read_end, write_end] = make_pipe(O_CLOEXEC);
  std::stop_source stop;
  GuestStream stream(write_end.get(), stop.get_token());
  const std::string more_than_fits(1'000'000, 'x');
  std::thread writer([&] { stream.write(more_than_fits); });
  // The first byte is there: the writer is at it, and nobody takes the rest.
  pollfd entry{.fd = read_end.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
  stop.request_stop();
  writer.join();
  write_end.reset();
  EXPECT_LT(read_to_end(read_end.get()).size(), more_than_fits.size());
}

// ISO-07
TEST_F(Console, NeverSendsAnEscapeToATerminal) {
  int master = -1;
  int terminal = -1;
  ASSERT_EQ(::openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const sys::UniqueFd owned_master(master);
  sys::UniqueFd owned_terminal(terminal);
  GuestStream stream(terminal, {});
  stream.write(std::string_view("\x1b]0;title\x07\xe2"));
  stream.write(std::string_view("\x82\xac\xff"));
  stream.finish();
  owned_terminal.reset();
  EXPECT_EQ(read_to_end(master), "^[]0;title^G\xe2\x82\xac\xef\xbf\xbd");
}

// Has descriptors 1 and 2 lead elsewhere while it lives.
class Redirected {
 public:
  Redirected(int out, int err) { point_at(out, err); }
  ~Redirected() { point_at(out_.get(), err_.get()); }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  static void point_at(int out, int err) {
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
  }
  sys::UniqueFd out_{::dup(STDOUT_FILENO)};
  sys::UniqueFd err_{::dup(STDERR_FILENO)};
};

TEST_F(Console, ANoteIsALineOfItsOwnAfterAStreamThatStoppedWithinOne) {
  auto [out_read, out] = make_pipe(O_CLOEXEC);
  auto [err_read, err] = make_pipe(O_CLOEXEC);
  {
    const Redirected redirected(out.get(), err.get());
    GuestStream stream(STDERR_FILENO, {});
    stream.write(std::string_view("tail"));
    say_line("missing gone");
    say_line("saved there");
    stream.write(std::string_view("whole\n"));
    // What goes elsewhere does not matter here.
    GuestStream(STDOUT_FILENO, {}).write(std::string_view("tail"));
    say_line("saved other");
  }
  err.reset();
  EXPECT_EQ(read_to_end(err_read.get()), "tail\nmissing gone\nsaved there\nwhole\nsaved other\n");
}

TEST_F(Console, ANoteIsALineOfItsOwnWhereBothStreamsAreOne) {
  auto [read_end, write_end] = make_pipe(O_CLOEXEC);
  {
    const Redirected redirected(write_end.get(), write_end.get());
    GuestStream(STDERR_FILENO, {}).write(std::string_view("one"));
    GuestStream(STDOUT_FILENO, {}).write(std::string_view(" two"));
    say_line("saved a");
    GuestStream(STDERR_FILENO, {}).write(std::string_view("three"));
    GuestStream(STDOUT_FILENO, {}).write(std::string_view(" four\n"));
    say_line("saved b");
  }
  write_end.reset();
  EXPECT_EQ(read_to_end(read_end.get()), "one two\nsaved a\nthree four\nsaved b\n");
}

}  // namespace
}  // namespace casemate::app
