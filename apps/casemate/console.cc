#include "apps/casemate/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <optional>

#include "casemate/base/one_line.h"
#include "casemate/sys/poll.h"

namespace casemate::app {

namespace {

bool is_control(unsigned char byte) {
  return (byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r') || byte == 0x7f;
}

// Of what is said of a run.
constexpr std::size_t kMaxLine = 4000;

// How far the lines of our output are: what the process's descriptors are, this is of the process.
// Any thread may write, and each write says what it left behind.
std::array<std::atomic<bool>, 3> unfinished_line{};
std::atomic<int> last_written = STDERR_FILENO;

void note_how_it_ended(int fd, char last) {
  if (fd != STDOUT_FILENO && fd != STDERR_FILENO) return;
  unfinished_line[static_cast<std::size_t>(fd)] = last != '\n';
  last_written = fd;
}

// A terminal, or `2>&1`.
bool streams_are_one() {
  struct stat out = {};
  struct stat err = {};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

bool standard_error_is_within_a_line() {
  const int fd = streams_are_one() ? last_written.load() : STDERR_FILENO;
  return unfinished_line[static_cast<std::size_t>(fd)];
}

}  // namespace

void prepare_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // Opened the wrong way round, so that it stays as unusable as it was.
    const int opened = ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != fd) ::close(opened);
  }
  // A write that cannot be done is then one that fails, and is reported.
  static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    // A file on FUSE may take nothing and say no error, as often as it is asked.
    if (written == 0) errno = EIO;
    if (written > 0) {
      note_how_it_ended(fd, bytes[static_cast<std::size_t>(written) - 1]);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      // Somebody shares the open file description and made it non-blocking.
      pollfd entry{.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&entry, 1, -1);
    } else if (errno == EPIPE || errno == EBADF) {
      throw OutputClosed();
    } else if (errno != EINTR) {
      throw OutputFailed(fmt::format("writing standard {} failed: {}", fd == 1 ? "output" : "error",
                                     std::strerror(errno)),
                         "see that it can be written, and run again");
    }
  }
}

GuestStream::GuestStream(int fd, const std::stop_token& stop)
    : fd_(fd),
      terminal_(::isatty(fd) == 1),
      stopped_(sys::make_event()),
      on_stop_(stop, [event = stopped_.get()] { sys::raise_event(event); }) {}

void GuestStream::write(std::span<const char> bytes) {
  const std::string_view text(bytes.data(), bytes.size());
  if (terminal_) {
    pass_on(show_controls(decoder_.feed(text)));
  } else {
    pass_on(text);
  }
}

void GuestStream::finish() {
  if (terminal_) pass_on(show_controls(decoder_.finish()));
}

bool GuestStream::wait_until_writable() const {
  std::array<pollfd, 2> entries = {{{.fd = fd_, .events = POLLOUT, .revents = 0},
                                    {.fd = stopped_.get(), .events = POLLIN, .revents = 0}}};
  std::optional<sys::SteadyTime> until;
  if (end_of_time_) {
    until = std::max(*end_of_time_, std::chrono::steady_clock::now()) + kReaderPatience;
  }
  sys::poll_until(entries, until);
  return entries[0].revents != 0;
}

void GuestStream::pass_on(std::string_view bytes) {
  if (closed_) return;
  try {
    pass_on_while_open(bytes);
  } catch (const OutputClosed&) {
    if (fd_ == STDOUT_FILENO) throw;
    closed_ = true;
  }
}

void GuestStream::pass_on_while_open(std::string_view bytes) {
  // So much a pipe that polls writable takes without blocking (pipe(7)).
  constexpr std::size_t kPiece = PIPE_BUF;
  while (!bytes.empty() && dropped_ == 0 && wait_until_writable()) {
    write_all(fd_, bytes.substr(0, kPiece));
    bytes.remove_prefix(std::min(kPiece, bytes.size()));
  }
  // Once something is dropped all that follows is: a stream may end early, never have a hole.
  dropped_ += bytes.size();
}

std::string show_controls(std::string_view valid_utf8) {
  std::string shown;
  shown.reserve(valid_utf8.size());
  for (std::size_t at = 0; at < valid_utf8.size(); ++at) {
    const auto byte = static_cast<unsigned char>(valid_utf8[at]);
    // U+0080 to U+009F, which terminals obey like ESC and a letter, are C2 80 to C2 9F.
    const bool c1 = byte == 0xc2 && at + 1 < valid_utf8.size() &&
                    static_cast<unsigned char>(valid_utf8[at + 1]) < 0xa0;
    if (c1) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(valid_utf8[++at]));
    } else if (is_control(byte)) {
      shown += '^';
      shown += static_cast<char>(byte ^ 0x40);
    } else {
      shown += static_cast<char>(byte);
    }
  }
  return shown;
}

void say(std::string_view text) noexcept {
  try {
    say_line(fmt::format("casemate: {}", text));
  } catch (const std::exception&) {
    // Out of memory: there is nothing to say it with.
  }
}

void say_error(std::string_view code, std::string_view message, std::string_view hint) noexcept {
  try {
    say(fmt::format("error: {}: {}{}{}", code, message, hint.empty() ? "" : "; ", hint));
  } catch (const std::exception&) {
    // As above.
  }
}

void say_line(std::string_view text) noexcept {
  try {
    write_all(STDERR_FILENO, (standard_error_is_within_a_line() ? "\n" : "") +
                                 one_line(text.substr(0, kMaxLine)) + '\n');
  } catch (const std::exception&) {
    // Nobody reads standard error any more; the exit status still tells.
  }
}

}  // namespace casemate::app
