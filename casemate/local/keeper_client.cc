#include "casemate/local/keeper_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/subordinate_ids.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::local {
namespace {

using sys::UniqueFd;

// For the end of a sandbox, which takes the kernel a few milliseconds.
constexpr std::chrono::seconds kGiveUpPatience{5};

// Each sandbox costs this process, and its keeper, a few descriptors.
constexpr char kDisposeHint[] =
    "dispose conversations that are over, or raise the limit on open files (ulimit -n)";

// Numbers in the keeper. The host's own are moved above them first, so that none is overwritten.
constexpr int kSocketNumber = 3;
constexpr int kProgramNumber = 4;

UniqueFd move_up(const UniqueFd& descriptor) {
  UniqueFd moved(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kProgramNumber + 1));
  if (!moved) sys::throw_errno("duplicating a descriptor");
  return moved;
}

class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  pid_t start(int socket, int program, std::vector<std::string> arguments) {
    // The keeper outlives this process: it must not hold its terminal, its pipes or its signals.
    for (const int standard : {0, 1, 2}) {
      check(posix_spawn_file_actions_addopen(&actions_, standard, "/dev/null", O_RDWR, 0));
    }
    check(posix_spawn_file_actions_adddup2(&actions_, socket, kSocketNumber));
    check(posix_spawn_file_actions_adddup2(&actions_, program, kProgramNumber));
    check(posix_spawn_file_actions_addclosefrom_np(&actions_, kProgramNumber + 1));
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    check(posix_spawnattr_setsigmask(&attributes_, &none));
    check(posix_spawnattr_setsigdefault(&attributes_, &all));
    check(posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    arguments.insert(arguments.begin(), "casemate-guest");
    if (const auto subordinate = subordinate_ids()) {
      arguments.insert(arguments.begin() + 2, guest::encode(*subordinate));
    }
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    char* environment[] = {nullptr};
    const std::string path = "/proc/self/fd/" + std::to_string(kProgramNumber);
    pid_t pid = -1;
    check(posix_spawn(&pid, path.c_str(), &actions_, &attributes_, words.data(), environment));
    return pid;
  }

 private:
  static void check(int error) {
    if (error != 0) sys::throw_error(error, "starting the keeper");
  }
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Waits for the socket, the deadline or the stop.
void wait_readable(int socket, const CallControl& control, std::string_view what) {
  // Where there is no descriptor left a sandbox can still be given up.
  UniqueFd stopped;
  if (control.stop.stop_possible()) stopped = sys::make_event();
  const std::stop_callback callback(control.stop, [&] { sys::raise_event(stopped.get()); });
  std::vector<pollfd> entries{{.fd = socket, .events = POLLIN, .revents = 0},
                              {.fd = stopped.get(), .events = POLLIN, .revents = 0}};
  const int ready = sys::poll_until(entries, control.deadline);
  if (entries[0].revents != 0) return;
  if (ready == 0) throw SandboxTimeout(fmt::format("the deadline came while {}", what));
  throw SandboxCancelled(fmt::format("cancelled while {}", what));
}

[[noreturn]] void refuse(std::string_view what, const char* failure, int error) {
  Remedy remedy = remedy_for(failure, error, look_at_host());
  const std::string hint = remedy.hint.empty()
                               ? provider_hint(std::system_error(error, std::generic_category()))
                               : remedy.hint;
  throw Carrying<SandboxUnavailable, Remedy>(
      SandboxUnavailable(fmt::format("{}: {}", what, failure), hint), std::move(remedy));
}

// A failure of the connection itself; any other is of this process.
bool says_that_it_ended(const std::system_error& error) {
  const int value = error.code().value();
  return value == EPIPE || value == ECONNRESET || value == ENOTCONN || value == EPROTO;
}

}  // namespace

std::string provider_hint(const std::system_error& error) {
  switch (error.code().value()) {
    case EMFILE:
      return kDisposeHint;
    case ENOSPC:
    case EDQUOT:
      return "make room where the state directory is, or choose another "
             "(the backend's option state_dir)";
    case EROFS:
      return "the state directory is on a file system that cannot be written: choose another "
             "(the backend's option state_dir)";
    default:
      return "";
  }
}

std::uint64_t KeeperClient::create(guest::CreateSandbox request, std::span<const int> descriptors,
                                   const CallControl& control) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!control.deadline) {
    lock.lock();
  } else if (!lock.try_lock_until(*control.deadline)) {
    throw SandboxTimeout("the deadline came while other sandboxes were being made");
  }
  for (int attempt = 1;; ++attempt) {
    start_if_needed();
    request.number = ++last_number_;
    try {
      const std::span<const char> bytes(reinterpret_cast<const char*>(&request), sizeof request);
      sys::send_message(socket_.get(), bytes, descriptors, sys::Blocking::yes);
      const guest::KeeperAnswer answer = receive(request.number, control);
      reap_launcher();
      if (answer.error == 0) {
        identity_ = answer.text;
        return request.number;
      }
      refuse("a sandbox could not be made", answer.text, answer.error);
    } catch (const std::system_error& error) {
      if (!says_that_it_ended(error)) {
        give_up_locked(request.number);
        throw SandboxUnavailable(fmt::format("asking for a sandbox: {}", error.what()),
                                 provider_hint(error));
      }
      hear_last_words();
      // It was killed. Everything it had made ends with it, so a second try starts clean.
      socket_.reset();
      reap_launcher();
      if (attempt == 2) {
        throw SandboxUnavailable(fmt::format("the keeper of sandboxes ended: {}", error.what()));
      }
    } catch (const SandboxError&) {
      give_up_locked(request.number);
      throw;
    }
  }
}

std::string KeeperClient::identity() {
  const std::lock_guard lock(mutex_);
  return identity_;
}

bool KeeperClient::give_up(std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  return give_up_locked(number);
}

bool KeeperClient::give_up_locked(std::uint64_t number) noexcept {
  // Then what it had made ends with it. A newer one answers for a number that it does not know.
  if (!socket_ || owner_ != getpid()) return false;
  try {
    const guest::GiveUpSandbox message{.number = number};
    sys::send_message(socket_.get(), {reinterpret_cast<const char*>(&message), sizeof message}, {},
                      sys::Blocking::yes);
    CallControl patience;
    patience.deadline = std::chrono::steady_clock::now() + kGiveUpPatience;
    while (receive(number, patience).error != ECANCELED) {
    }
    return true;
  } catch (const std::exception&) {
    return false;  // the keeper ends it yet, or its own end does
  }
}

KeeperClient::~KeeperClient() {
  // A forked child has no such child.
  if (owner_ == getpid()) reap_launcher();
}

void KeeperClient::start_ahead() {
  // Where another thread is making a sandbox the keeper is there.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) start_if_needed();
}

void KeeperClient::start_if_needed() {
  std::vector<std::string> arguments = arguments_();
  if (socket_ && owner_ == getpid() && arguments == started_with_) return;
  try {
    auto [ours, keepers] = sys::socket_pair(sys::SocketType::seqpacket);
    const UniqueFd socket = move_up(keepers);
    const UniqueFd program = move_up(guest::make_guest_program_file());
    SpawnPlan plan;
    reap_launcher();
    launcher_ = plan.start(socket.get(), program.get(), arguments);
    started_with_ = std::move(arguments);
    socket_ = std::move(ours);
    owner_ = getpid();
  } catch (const std::system_error& error) {
    refuse("the keeper of sandboxes did not start", error.what(), error.code().value());
  }
}

// Throws `SandboxUnavailable` where the keeper said why it could not begin, before it ended. Its
// end with requests unread comes first, once, as an error of the connection.
void KeeperClient::hear_last_words() {
  for (int attempt = 0; attempt < 3; ++attempt) {
    guest::KeeperAnswer answer{};
    const ssize_t size = recv(socket_.get(), &answer, sizeof answer, MSG_DONTWAIT);
    if (size < 0 && errno == ECONNRESET) continue;
    if (size != sizeof answer) return;
    if (answer.number != 0) continue;
    answer.text[sizeof answer.text - 1] = '\0';
    socket_.reset();
    reap_launcher();
    refuse("the keeper of sandboxes did not start", answer.text, answer.error);
  }
}

// Its child, the keeper, goes on. Where the application reaps every child itself, or ignores
// SIGCHLD, there is nothing left to wait for.
void KeeperClient::reap_launcher() {
  if (launcher_ < 0) return;
  while (waitpid(launcher_, nullptr, 0) < 0 && errno == EINTR) {
  }
  launcher_ = -1;
}

// Answers to requests that were given up on are passed over.
guest::KeeperAnswer KeeperClient::receive(std::uint64_t number, const CallControl& control) {
  while (true) {
    wait_readable(socket_.get(), control, "a sandbox was being made");
    guest::KeeperAnswer answer{};
    const sys::ReceivedMessage message = sys::receive_message(
        socket_.get(), {reinterpret_cast<char*>(&answer), sizeof answer}, sys::Blocking::no);
    if (message.would_block) continue;
    if (message.bytes == 0) sys::throw_error(EPIPE, "hearing from the keeper");
    if (message.bytes != sizeof answer) sys::throw_error(EPROTO, "hearing from the keeper");
    answer.text[sizeof answer.text - 1] = '\0';
    if (answer.number == 0) {
      refuse("the keeper of sandboxes did not start", answer.text, answer.error);
    }
    if (answer.number == number) return answer;
  }
}

}  // namespace casemate::local
