#include "apps/casemate/host_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <system_error>
#include <utility>

#include "apps/casemate/host_command_child.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::app {

namespace {

struct Pipe {
  sys::UniqueFd read;
  sys::UniqueFd write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  return {sys::UniqueFd(ends[0]), sys::UniqueFd(ends[1])};
}

void make_nonblocking(const sys::UniqueFd& fd) {
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "fcntl(F_SETFL)");
  }
}

// The guardian of a command with its watcher, which is the child of this process. Ends the command
// and reaps it.
class Guardian {
 public:
  Guardian(const std::string& command, const Pipe& input, const Pipe& output, const Pipe& errors)
      : wanted_(make_pipe()) {
    const HostCommandSetting setting = {command.c_str(), input.read.get(), output.write.get(),
                                        errors.write.get(), wanted_.read.get()};
    pid_ = ::fork();
    if (pid_ == 0) guard_host_command(setting);
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    wanted_.read.reset();
    try {
      process_ = sys::open_pid(pid_);
    } catch (...) {
      end();
      throw;
    }
  }
  ~Guardian() { end(); }
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Readable once the command and all of its group have ended.
  int process() const { return process_.get(); }

  // Has the command killed, if it still runs, and waits for its end. The exit status.
  int end() noexcept {
    if (pid_ <= 0) return status_;
    wanted_.write.reset();
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return status_;
  }

 private:
  Pipe wanted_;
  pid_t pid_ = 0;
  sys::UniqueFd process_;
  int status_ = 0;
};

// Writes what fits; closes the pipe when all is written or nobody reads.
void feed(sys::UniqueFd& pipe, std::string_view& input) {
  while (!input.empty()) {
    const ssize_t count = ::write(pipe.get(), input.data(), input.size());
    if (count >= 0) {
      input.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      break;
    }
  }
  pipe.reset();
}

// Takes what is there, keeping up to `most` bytes; closes the pipe at its end. False once there was
// more than that.
bool take(sys::UniqueFd& pipe, std::string& kept, std::size_t most) {
  bool fits = true;
  std::array<char, 64 * 1024> piece;
  for (;;) {
    const ssize_t count = ::read(pipe.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return fits;
    if (count <= 0) {
      pipe.reset();
      return fits;
    }
    const auto bytes = static_cast<std::size_t>(count);
    const std::size_t taken = std::min(bytes, most - kept.size());
    kept.append(piece.data(), taken);
    if (taken < bytes) {
      fits = false;
      // One that never stops printing must not keep this loop.
      return fits;
    }
  }
}

}  // namespace

HostCommandResult run_host_command(const std::string& command, std::string_view input,
                                   std::size_t max_output_bytes, const std::stop_token& stop) {
  const sys::UniqueFd stopped = sys::make_event();
  const std::stop_callback on_stop(stop, [&stopped] { sys::raise_event(stopped.get()); });
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  make_nonblocking(in.write);
  make_nonblocking(out.read);
  make_nonblocking(err.read);
  Guardian guardian(command, in, out, err);
  in.read.reset();
  out.write.reset();
  err.write.reset();

  HostCommandResult result;
  const auto pump = [&] {
    if (err.read) take(err.read, result.errors, kKeptErrorBytes);
    if (out.read && !take(out.read, result.output, max_output_bytes)) {
      result.end = HostCommandResult::End::too_much;
    }
  };
  feed(in.write, input);
  for (bool ended = false; !ended && result.end == HostCommandResult::End::exited;) {
    std::array<pollfd, 5> entries = {
        pollfd{stopped.get(), POLLIN, 0}, pollfd{guardian.process(), POLLIN, 0},
        pollfd{in.write.get(), POLLOUT, 0}, pollfd{out.read.get(), POLLIN, 0},
        pollfd{err.read.get(), POLLIN, 0}};
    sys::poll_until(entries, std::nullopt);
    if (entries[0].revents != 0) result.end = HostCommandResult::End::stopped;
    if (entries[2].revents != 0) feed(in.write, input);
    ended = entries[1].revents != 0;
    // Once it has ended, all that it printed is in the pipes.
    pump();
  }
  result.status = guardian.end();
  return result;
}

}  // namespace casemate::app
