#include "casemate/guest/machine/running_machine.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>

#include "casemate/guest/machine/time_stamp.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/staged_file.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// For a guest to start, also under emulation on a busy machine: seconds there, half of one under a
// hypervisor. Whoever asked for the sandbox may give up earlier.
constexpr std::chrono::seconds kStartPatience{300};
// For a hypervisor that closed its control line to have ended.
constexpr std::chrono::seconds kEndPatience{5};
// Of the console, for a person.
constexpr std::size_t kMostSaid = 2048;
constexpr std::size_t kSaidShown = 160;

}  // namespace

RunningMachine::RunningMachine(const MachinePlan& plan, const SandboxIds& ids,
                               std::vector<UniqueFd> groups)
    : plan_(plan), ids_(ids), groups_(std::move(groups)) {}

RunningMachine::~RunningMachine() { end(); }

void RunningMachine::end() noexcept {
  control_.reset();
  if (hypervisor_.pid > 0) {
    kill(hypervisor_.pid, SIGKILL);
    while (waitpid(hypervisor_.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  hypervisor_ = {};
  stream_.reset();
  console_.reset();
}

void RunningMachine::start(const std::vector<std::string>& more) {
  end();
  restored_ = false;
  said_.clear();
  HypervisorParts parts;
  std::tie(stream_, parts.stream) = sys::socket_pair(sys::SocketType::stream);
  UniqueFd control;
  std::tie(control, parts.control) = sys::socket_pair(sys::SocketType::stream);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) sys::throw_errno("making a pipe");
  console_ = UniqueFd(ends[0]);
  parts.console = UniqueFd(ends[1]);
  fcntl(console_.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> arguments = plan_.arguments;
  arguments.insert(arguments.end(), more.begin(), more.end());
  hypervisor_ = start_hypervisor(plan_, arguments, std::move(parts), ids_, groups_);
  try {
    control_.emplace(std::move(control));
  } catch (const std::system_error& error) {
    fail(error.code().value(), "starting the hypervisor");
  }
}

void RunningMachine::get_ready() {
  if (!plan_.saved.empty() && restore()) return;
  start_afresh();
  // One that could not be restored now, and is not to blame, is there already.
  if (plan_.saved.empty() || access(plan_.saved.c_str(), F_OK) == 0) return;
  try {
    save();
  } catch (const std::system_error&) {
    // No room for it, most likely: then this very machine goes on, and the next starts afresh too.
    control_->go_on();
    return;
  }
  if (!restore()) start_afresh();
}

void RunningMachine::start_afresh() {
  std::vector<std::string> arguments = plan_.fresh_arguments;
  for (std::string& argument : arguments) {
    const std::size_t at = argument.find(kTimeStampKhz);
    if (at == argument.npos) continue;
    argument.replace(at, kTimeStampKhz.size(), std::to_string(time_stamp_khz()));
  }
  start(arguments);
  MachineReady ready{};
  receive(&ready, sizeof ready, "waiting for the guest");
  ready.text[sizeof ready.text - 1] = '\0';
  if (ready.magic != kMachineMagic) sys::throw_error(EPROTO, "hearing the guest");
  if (ready.error != 0) sys::throw_error(ready.error, ready.text);
}

// False where there is none, or none that can be used now.
bool RunningMachine::restore() {
  const UniqueFd saved(open(plan_.saved.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!saved) return false;
  // Whoever removes old ones sees that it is in use.
  flock(saved.get(), LOCK_SH | LOCK_NB);
  // What fails before it was read is not its fault, and most likely fails a fresh start too.
  start(plan_.restored_arguments);
  try {
    control_->restore(saved.get());
    restored_ = true;
    return true;
  } catch (const std::system_error& error) {
    drop_saved_if_at_fault(error);
    return false;
  }
}

// Another hypervisor's, or damaged, the next is made anew. What this machine has too little of, or
// whoever killed the hypervisor, leaves it.
void RunningMachine::drop_saved_if_at_fault(const std::system_error& error) noexcept {
  bool at_fault = false;
  switch (error.code().value()) {
    case EREMOTEIO:
    case EPROTO:
    case ETIMEDOUT:
      at_fault = true;
      break;
    case EPIPE:
    case ECONNRESET:
    case ESRCH:
      at_fault = ended_by_itself();
      break;
    default:
      break;
  }
  if (at_fault) unlink(plan_.saved.c_str());
}

// By an exit or a crash, not by a kill from outside (the kernel's when memory ran out).
bool RunningMachine::ended_by_itself() noexcept {
  pollfd entry{.fd = hypervisor_.process.get(), .events = POLLIN, .revents = 0};
  try {
    if (sys::poll_until({&entry, 1}, std::chrono::steady_clock::now() + kEndPatience) == 0) {
      return false;
    }
  } catch (const std::system_error&) {
    return false;
  }
  siginfo_t end{};
  if (waitid(P_PID, static_cast<id_t>(hypervisor_.pid), &end, WEXITED | WNOHANG | WNOWAIT) < 0) {
    return false;
  }
  if (end.si_code == CLD_EXITED) return true;
  return end.si_status == SIGSEGV || end.si_status == SIGBUS || end.si_status == SIGABRT ||
         end.si_status == SIGILL || end.si_status == SIGFPE;
}

void RunningMachine::save() {
  const std::size_t slash = plan_.saved.rfind('/');
  const UniqueFd directory = sys::open_at(AT_FDCWD, plan_.saved.substr(0, slash).c_str(),
                                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  sys::write_whole_file(directory.get(), plan_.saved.substr(slash + 1), 0600,
                        [this](int file) { control_->save(file); });
}

void RunningMachine::begin(MachineStart& start) {
  start.magic = kMachineMagic;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  start.seconds = now.tv_sec;
  start.nanoseconds = now.tv_nsec;
  if (getentropy(start.seed, sizeof start.seed) < 0) sys::throw_errno("drawing a seed");
  MachineStarted started{};
  try {
    started = hand_over(start);
  } catch (const std::system_error& error) {
    if (!restored_) throw;
    drop_saved_if_at_fault(error);
    start_afresh();
    started = hand_over(start);
  }
  explicit_bzero(start.seed, sizeof start.seed);
  started.text[sizeof started.text - 1] = '\0';
  if (started.magic != kMachineMagic) sys::throw_error(EPROTO, "hearing the guest");
  if (started.error != 0) sys::throw_error(started.error, started.text);
}

MachineStarted RunningMachine::hand_over(const MachineStart& start) {
  std::size_t sent = 0;
  const std::span<const char> bytes(reinterpret_cast<const char*>(&start), sizeof start);
  while (sent < bytes.size()) {
    sent += sys::send_message(stream_.get(), bytes.subspan(sent), {}, sys::Blocking::yes);
  }
  MachineStarted started{};
  receive(&started, sizeof started, "waiting for the guest's agent");
  return started;
}

bool RunningMachine::hear_console() {
  std::array<char, 4096> part{};
  const ssize_t count = read(console_.get(), part.data(), part.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) return false;
  said_.append(part.data(), static_cast<std::size_t>(count));
  if (said_.size() > kMostSaid) said_.erase(0, said_.size() - kMostSaid);
  return true;
}

void RunningMachine::receive(void* data, std::size_t size, const char* what) {
  const auto until = std::chrono::steady_clock::now() + kStartPatience;
  char* bytes = static_cast<char*>(data);
  bool console_open = true;
  while (size > 0) {
    std::array<pollfd, 3> entries{{
        {.fd = stream_.get(), .events = POLLIN, .revents = 0},
        {.fd = console_open ? console_.get() : -1, .events = POLLIN, .revents = 0},
        {.fd = hypervisor_.process.get(), .events = POLLIN, .revents = 0},
    }};
    if (sys::poll_until(entries, until) == 0) fail(ETIMEDOUT, what);
    if (entries[1].revents != 0) console_open = hear_console();
    if (entries[0].revents != 0) {
      const ssize_t count = recv(stream_.get(), bytes, size, MSG_DONTWAIT);
      if (count == 0) fail(EPIPE, what);
      if (count < 0 && errno != EAGAIN && errno != EINTR) fail(errno, what);
      if (count > 0) {
        bytes += count;
        size -= static_cast<std::size_t>(count);
      }
    } else if (entries[2].revents != 0) {
      fail(ESRCH, what);
    }
  }
}

// With the end of what the console said: what a kernel says as it panics, and what the hypervisor
// says of its arguments. Only what can be shown of it.
void RunningMachine::fail(int error, const std::string& what) {
  while (console_) {
    const std::size_t before = said_.size();
    if (!hear_console() || said_.size() == before) break;
  }
  std::string shown;
  for (const char byte : said_) shown += byte >= ' ' && byte <= '~' ? byte : ' ';
  if (shown.size() > kSaidShown) shown.erase(0, shown.size() - kSaidShown);
  const std::string tail = shown.empty() ? "" : "; the console's last words: " + shown;
  sys::throw_error(error, what + tail);
}

}  // namespace casemate::guest
