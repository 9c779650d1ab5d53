#include "casemate/guest/agent/exec_init.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/directory.h"
#include "casemate/guest/agent/exec_children.h"
#include "casemate/guest/agent/guest_io.h"
#include "casemate/guest/agent/held_file.h"
#include "casemate/guest/agent/program_start.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/poll.h"

namespace casemate::guest {
namespace {

using std::chrono::nanoseconds;
using sys::SteadyTime;
using Clock = SteadyTime::clock;

// While more output than this waits for the host, the program's pipes are left alone.
constexpr std::size_t kMaxPendingOutput = 128 * 1024;
// The host is gone or broke the protocol: everything ends, nobody is told.
struct ConnectionOver {};

std::uint64_t microseconds(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(time.tv_usec);
}

std::optional<SteadyTime> sooner(std::optional<SteadyTime> one, std::optional<SteadyTime> other) {
  if (one && other) return std::min(*one, *other);
  return one ? one : other;
}

std::vector<int> numbers(const std::vector<sys::UniqueFd>& descriptors) {
  std::vector<int> numbers;
  numbers.reserve(descriptors.size());
  for (const sys::UniqueFd& descriptor : descriptors) numbers.push_back(descriptor.get());
  return numbers;
}

// One output stream of the program.
struct OutputPipe {
  sys::UniqueFd fd;
  FrameType type;
  // Bytes still to be sent once everything has ended.
  std::size_t rest = 0;
};

// The program's standard input, when the host writes it.
struct InputPipe {
  sys::UniqueFd fd;
  std::string buffer;
  bool piped = false;
  bool ended = false;   // by the host
  bool closed = false;  // by the program, and the host was told
};

class ExecInit {
 public:
  ExecInit(int connection, Stay stay, const std::vector<sys::UniqueFd>& groups,
           const CpuBudgetMeter* budget, Place& place)
      : connection_(connection),
        stays_(stay == Stay::yes),
        groups_(numbers(groups)),
        budget_(budget),
        place_(place),
        reader_(connection),
        writer_(connection),
        children_(place),
        program_(stay, groups_, children_, place) {}

  // Throws `ConnectionOver`, `ProtocolError`, `std::system_error`; then nothing but a kill is left.
  void run() {
    std::optional<Exec> request;
    try {
      place_.enter_exec_scope();
      program_.start_ahead(connection_);
      const std::optional<Frame> frame = await_frame(connection_, reader_);
      if (!frame) throw ConnectionOver{};
      if (is(*frame, FrameType::hold) && !stays_) {
        request = hold(decode_hold(frame->payload));
        if (!request) return;
      } else {
        if (!is(*frame, FrameType::exec)) throw ProtocolError("no exec request");
        request = decode_exec(frame->payload);
        if (!start(*request, frame->payload, Begin::now)) return;
      }
    } catch (const std::system_error& error) {
      send_failure({FailureReason::no_resources, error.code().value(), error.what()});
      return;
    }
    ended_.cause = pump(deadline_of(*request));
    finish();
  }

  void kill_everything() noexcept { children_.end_all(); }

 private:
  void put(FrameType type, std::string_view payload = {}) { writer_.put(wire(type), payload); }

  void send_failure(const Failure& failure) {
    children_.end_all();
    put(FrameType::failed, encode(failure));
    await_flush(connection_, writer_);
  }

  std::optional<SteadyTime> deadline_of(const Exec& request) const {
    if (request.timeout_ns == 0) return std::nullopt;
    const auto longest = static_cast<std::uint64_t>((SteadyTime::max() - started_).count());
    return started_ + nanoseconds(static_cast<std::int64_t>(std::min(request.timeout_ns, longest)));
  }

  // -- Start -------------------------------------------------------------------------------------

  // Whether the host is told at once that the program begins, or not before it is released.
  enum class Begin : bool { later, now };

  // False when the host was told why not. `text` is the encoded request.
  bool start(const Exec& request, std::string_view text, Begin begin) {
    sys::UniqueFd directory;
    try {
      directory = open_directory(request.directory);
    } catch (const OperationFailed& failed) {
      Failure failure = failed.failure;
      if (failure.reason == FailureReason::errno_value) failure.reason = FailureReason::directory;
      send_failure(failure);
      return false;
    }
    if (stays_ && request.stdin_piped) throw ProtocolError("input for a program that stays");
    if (begin == Begin::now) {
      put(FrameType::begun);
      if (!await_flush(connection_, writer_)) throw ConnectionOver{};
    }
    const std::optional<Failure> failure = program_.start(request, text, directory.get());
    started_ = Clock::now();
    if (budget_ != nullptr) next_look_ = started_;
    if (failure) {
      send_failure(*failure);
      return false;
    }
    if (begin == Begin::now) {
      put(FrameType::started);
      flush();
    }
    ProgramStart::Streams streams = program_.take_streams();
    outputs_[0] = {std::move(streams.out), FrameType::output_out};
    outputs_[1] = {std::move(streams.err), FrameType::output_err};
    if (request.stdin_piped) input_.fd = std::move(streams.in);
    input_.piped = request.stdin_piped;
    return true;
  }

  // Starts the program and leaves it where it reads its file, until that comes. Returns what it is
  // from then on; nothing when the host was told why not.
  std::optional<Exec> hold(Hold request) {
    HeldFile file(request.path, request.imports, place_);
    if (!start(request.exec, encode(request.exec), Begin::later)) return std::nullopt;
    const std::optional<Release> release = await_release(file);
    if (!release) {
      send_failure({FailureReason::no_resources, ESRCH, "a program that was held has ended"});
      return std::nullopt;
    }
    file.stage(release->source);
    // Its end may be waiting to be seen: from `begun` on it would be the program's.
    children_.reap();
    if (children_.program_status()) {
      send_failure({FailureReason::no_resources, ESRCH, "a program that was held has ended"});
      return std::nullopt;
    }
    place_.count_refusals();
    put(FrameType::begun);
    if (!await_flush(connection_, writer_)) throw ConnectionOver{};
    file.fill(release->source);
    started_ = Clock::now();
    if (budget_ != nullptr) next_look_ = started_;
    before_release_ = cpu_time_of(children_.program());
    put(FrameType::started);
    flush();
    request.exec.timeout_ns = release->timeout_ns;
    return std::move(request.exec);
  }

  // Nothing when the program ended first.
  std::optional<Release> await_release(HeldFile& file) {
    while (true) {
      if (const std::optional<Frame> frame = reader_.next()) {
        if (!is(*frame, FrameType::release)) throw ProtocolError("no release of what is held");
        return decode_release(frame->payload);
      }
      if (reader_.closed()) throw ConnectionOver{};
      std::array<pollfd, 3> entries{{{connection_, POLLIN, 0},
                                     {children_.event(), POLLIN, 0},
                                     {file.opened_event(), POLLIN, 0}}};
      sys::poll_until(entries, std::nullopt);
      if (entries[2].revents != 0) {
        file.forget_event();
        put(FrameType::held);
        flush();
      }
      if (entries[1].revents != 0) children_.reap();
      if (children_.program_status()) return std::nullopt;
    }
  }

  static std::uint64_t cpu_time_of(pid_t process) {
    clockid_t clock{};
    timespec time{};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_nsec);
  }

  // -- While it runs -----------------------------------------------------------------------------

  EndCause pump(std::optional<SteadyTime> deadline) {
    while (true) {
      std::array<pollfd, 5> entries{};
      const bool room = writer_.pending() <= kMaxPendingOutput;
      entries[0] = {host_gone_ ? -1 : connection_,
                    short(POLLIN | (writer_.pending() != 0 ? POLLOUT : 0)), 0};
      entries[1] = {children_.event(), POLLIN, 0};
      entries[2] = {room ? outputs_[0].fd.get() : -1, POLLIN, 0};
      entries[3] = {room ? outputs_[1].fd.get() : -1, POLLIN, 0};
      // Without POLLOUT it still tells (POLLERR) when nobody reads it any more.
      entries[4] = {input_.fd.get(), short(input_.buffer.empty() ? 0 : POLLOUT), 0};
      const bool quiet = sys::poll_until(entries, sooner(deadline, next_look_)) == 0;
      if (quiet || entries[1].revents != 0) children_.reap();
      if (children_.program_status()) return cause_of_status();
      if (deadline && Clock::now() >= *deadline) return EndCause::timed_out;
      if (budget_is_spent()) return EndCause::signaled;
      if ((entries[4].revents & POLLERR) != 0) {
        input_was_closed();
      } else if (entries[4].revents != 0) {
        write_input();
      }
      if (entries[2].revents != 0) read_output(outputs_[0]);
      if (entries[3].revents != 0) read_output(outputs_[1]);
      if (entries[0].revents != 0 && take_requests()) return EndCause::cancelled;
      flush();
    }
  }

  // Looks when the rest could have been spent, no sooner.
  bool budget_is_spent() {
    if (!next_look_ || Clock::now() < *next_look_) return false;
    const std::optional<nanoseconds> pause = budget_->pause();
    if (pause) next_look_ = Clock::now() + *pause;
    return !pause;
  }

  // True when the host cancelled.
  bool take_requests() try {
    while (const std::optional<Frame> frame = reader_.next()) {
      switch (static_cast<FrameType>(frame->type)) {
        case FrameType::stdin_data:
          take_input(*frame);
          break;
        case FrameType::stdin_end:
          expect_empty(*frame);
          if (!input_.piped) throw ProtocolError("input for a program without");
          input_.ended = true;
          if (input_.buffer.empty()) input_.fd.reset();
          break;
        case FrameType::signal:
          // Not reaped yet, so the id is still the program's.
          if (children_.program() > 0) kill(children_.program(), decode_signal(frame->payload));
          break;
        case FrameType::cancel:
          expect_empty(*frame);
          return true;
        default:
          throw ProtocolError("no request of an exec connection");
      }
    }
    if (reader_.closed()) host_is_gone();
    return false;
  } catch (const std::system_error&) {
    host_is_gone();
    return false;
  }

  void host_is_gone() {
    if (!stays_) throw ConnectionOver{};
    host_gone_ = true;
  }

  void take_input(const Frame& frame) {
    expect_data(frame);
    if (!input_.piped || input_.ended) throw ProtocolError("input where there is none");
    if (input_.closed) return;  // under way when the program closed its end
    if (input_.buffer.size() + frame.payload.size() > kStdinWindow) {
      throw ProtocolError("more input than the window");
    }
    input_.buffer += frame.payload;
    write_input();
  }

  void write_input() {
    std::size_t taken = 0;
    while (taken < input_.buffer.size()) {
      const std::string_view rest = std::string_view(input_.buffer).substr(taken);
      const ssize_t written = write(input_.fd.get(), rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) break;
      if (written < 0) return input_was_closed();
      taken += static_cast<std::size_t>(written);
    }
    if (taken != 0) {
      input_.buffer.erase(0, taken);
      put(FrameType::stdin_taken, encode_stdin_taken(static_cast<std::uint32_t>(taken)));
    }
    if (input_.ended && input_.buffer.empty()) input_.fd.reset();
  }

  void input_was_closed() {
    input_.fd.reset();
    input_.buffer.clear();
    input_.closed = true;
    put(FrameType::stdin_closed);
  }

  // Reads once, at most one frame's worth; true when something came.
  bool read_output(OutputPipe& pipe, std::size_t most = kMaxData) {
    const ssize_t got = read(pipe.fd.get(), read_.get(), std::min(most, kMaxData));
    if (got > 0) {
      send(pipe.type, std::string_view(read_.get(), static_cast<std::size_t>(got)));
      pipe.rest -= std::min(pipe.rest, static_cast<std::size_t>(got));
      return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    pipe.fd.reset();
    pipe.rest = 0;
    return false;
  }

  void send(FrameType type, std::string_view payload) try {
    if (!host_gone_) writer_.send(wire(type), payload);
  } catch (const std::system_error&) {
    host_is_gone();
  }

  void flush() try {
    if (!host_gone_) writer_.flush();
  } catch (const std::system_error&) {
    host_is_gone();
  }

  // -- Its end -----------------------------------------------------------------------------------

  EndCause cause_of_status() const {
    return WIFEXITED(*children_.program_status()) ? EndCause::exited : EndCause::signaled;
  }

  void finish() {
    // While what fills the place is still there.
    const bool failed = children_.program_status() && *children_.program_status() != 0;
    if (failed) ended_.processes_ran_out = place_.processes_ran_out();
    const Place::Refused refused = place_.refused();
    ended_.forks_refused = refused.forks;
    ended_.memory_ran_out = refused.memory;
    ended_.stopped_known = children_.end_all();
    const auto wall = std::chrono::duration_cast<nanoseconds>(Clock::now() - started_);
    ended_.wall_ns = static_cast<std::uint64_t>(wall.count());
    const int status = children_.program_status().value_or(SIGKILL);
    // The program may have ended by itself after its budget was found spent.
    if (ended_.cause == EndCause::signaled && WIFEXITED(status)) ended_.cause = EndCause::exited;
    if (ended_.cause == EndCause::exited) ended_.exit_code = WEXITSTATUS(status);
    if (ended_.cause == EndCause::signaled) ended_.signal = WTERMSIG(status);
    rusage usage{};
    if (getrusage(RUSAGE_CHILDREN, &usage) == 0) {
      ended_.cpu_ns = 1000 * (microseconds(usage.ru_utime) + microseconds(usage.ru_stime));
      ended_.cpu_ns -= std::min(ended_.cpu_ns, before_release_);
      ended_.max_rss = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
    }
    const Place::DiskFull full = place_.disk_full();
    ended_.disk_full = full != Place::DiskFull::no;
    ended_.files_ran_out = full == Place::DiskFull::of_files;
    drain();
    if (host_gone_) return;
    put(FrameType::ended, encode(ended_));
    await_flush(connection_, writer_);
  }

  // Sends what the pipes hold now. Never until their end: a descriptor of the program may have gone
  // to a process outside of this exec, over a socket, which keeps the pipe open and may write on.
  void drain() {
    for (OutputPipe& pipe : outputs_) {
      int held = 0;
      if (pipe.fd && ioctl(pipe.fd.get(), FIONREAD, &held) == 0) {
        pipe.rest = static_cast<std::size_t>(held);
      }
    }
    for (OutputPipe& pipe : outputs_) {
      while (pipe.rest != 0) {
        if (!await_room()) throw ConnectionOver{};
        if (!read_output(pipe, pipe.rest)) break;
      }
    }
  }

  bool await_room() { return await_flush(connection_, writer_, kMaxPendingOutput); }

  int connection_;
  bool stays_;
  // Only where it stays.
  bool host_gone_ = false;
  std::vector<int> groups_;
  const CpuBudgetMeter* budget_;
  Place& place_;
  FrameReader reader_;
  FrameWriter writer_;
  ExecChildren children_;
  ProgramStart program_;
  std::array<OutputPipe, 2> outputs_;
  // Not cleared: most programs print less than one of its pages.
  std::unique_ptr<char[]> read_ = std::make_unique_for_overwrite<char[]>(kMaxData);
  InputPipe input_;
  SteadyTime started_;
  // Processor time of a held program until it was released, which is not the run's.
  std::uint64_t before_release_ = 0;
  // When the budget is read again.
  std::optional<SteadyTime> next_look_;
  Ended ended_;
};

}  // namespace

int run_exec_init(sys::UniqueFd connection, Stay stay, const std::vector<sys::UniqueFd>& groups,
                  const CpuBudgetMeter* budget, sys::UniqueFd parent_alive, Place& place) noexcept
    try {
  harden_process(parent_alive.get());
  ExecInit init(connection.get(), stay, groups, budget, place);
  try {
    init.run();
    return 0;
  } catch (const ConnectionOver&) {
  } catch (const std::exception&) {
  }
  init.kill_everything();
  return 1;
} catch (const std::exception&) {
  return 1;
}

}  // namespace casemate::guest
