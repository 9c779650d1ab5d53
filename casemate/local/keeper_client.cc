#include "casemate/local/keeper_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/subordinate_ids.h"
#include "casemate/sys/error.h"
#include "casemate/sys/socket.h"

namespace casemate::local {
namespace {

using sys::UniqueFd;

// For the end of a sandbox, which takes the kernel a few milliseconds.
constexpr std::chrono::seconds kGiveUpPatience{5};

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

template <typename R = SandboxUnavailable>
[[noreturn]] void refuse(std::string_view what, const char* failure, int error) {
  Remedy remedy = remedy_for(failure, error, look_at_host());
  const std::string hint = remedy.hint.empty()
                               ? provider_hint(std::system_error(error, std::generic_category()))
                               : remedy.hint;
  throw Carrying<R, Remedy>(R(fmt::format("{}: {}", what, failure), hint), std::move(remedy));
}

bool give_up_to(KeeperConnection& keeper, std::uint64_t number) noexcept {
  try {
    KeeperConnection::Waiting waiting(keeper, number);
    const guest::GiveUpSandbox message{.number = number};
    CallControl patience;
    patience.deadline = std::chrono::steady_clock::now() + kGiveUpPatience;
    keeper.send({reinterpret_cast<const char*>(&message), sizeof message}, {}, patience);
    while (waiting.receive(patience).error != ECANCELED) {
    }
    return true;
  } catch (const std::exception&) {
    return false;  // the keeper ends it yet, or its own end does
  }
}

// A failure of the connection itself; any other is of this process.
bool says_that_it_ended(const std::system_error& error) {
  const int value = error.code().value();
  return value == EPIPE || value == ECONNRESET || value == ENOTCONN || value == EPROTO;
}

}  // namespace

KeptBy KeeperClient::create(guest::CreateSandbox request, std::span<const int> descriptors,
                            const CallControl& control, const std::function<void()>& meanwhile) {
  std::unique_lock making(making_, std::defer_lock);
  if (starts_ == Starts::one_at_a_time) {
    if (!control.deadline) {
      making.lock();
    } else if (!making.try_lock_until(*control.deadline)) {
      throw SandboxTimeout("the deadline came while other sandboxes were being made");
    }
  }
  std::shared_ptr<KeeperConnection> keeper;
  {
    const std::lock_guard lock(mutex_);
    start_if_needed();
    keeper = keeper_;
    request.number = ++last_number_;
  }
  try {
    create_once(request, descriptors, *keeper, control, meanwhile);
    return {.keeper = std::move(keeper), .number = request.number};
  } catch (const std::system_error& error) {
    if (!says_that_it_ended(error)) {
      give_up_to(*keeper, request.number);
      throw SandboxUnavailable(fmt::format("asking for a sandbox: {}", error.what()),
                               provider_hint(error));
    }
    // It was killed, or could not begin.
    const auto last_words = keeper->last_words();
    forget(keeper);
    if (last_words) {
      refuse("the keeper of sandboxes did not start", last_words->text, last_words->error);
    }
    throw LostInTheMaking(fmt::format("the keeper of sandboxes ended: {}", error.what()));
  } catch (const SandboxError&) {
    // One that says nothing to that either is of no more use to anybody. One that has nothing to
    // say yet, of a sandbox that does not end, is.
    if (!give_up_to(*keeper, request.number) && keeper->is_silent()) forget(keeper);
    throw;
  }
}

void KeeperClient::create_once(const guest::CreateSandbox& request,
                               std::span<const int> descriptors, KeeperConnection& keeper,
                               const CallControl& control, const std::function<void()>& meanwhile) {
  KeeperConnection::Waiting waiting(keeper, request.number);
  keeper.send({reinterpret_cast<const char*>(&request), sizeof request}, descriptors, control);
  if (meanwhile) meanwhile();
  const guest::KeeperAnswer answer = waiting.receive(control);
  constexpr std::string_view kNotMade = "a sandbox could not be made";
  if (answer.error == ESRCH) refuse<LostInTheMaking>(kNotMade, answer.text, answer.error);
  if (answer.error != 0) refuse(kNotMade, answer.text, answer.error);
  const std::lock_guard lock(mutex_);
  reap_launcher();
  identity_ = answer.text;
}

std::string KeeperClient::identity() {
  const std::lock_guard lock(mutex_);
  return identity_;
}

bool KeeperClient::give_up(const KeptBy& sandbox) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (owner_ != getpid()) return false;
  }
  return give_up_to(*sandbox.keeper, sandbox.number);
}

KeeperClient::~KeeperClient() {
  // A forked child has no such child.
  if (owner_ == getpid()) reap_launcher();
}

void KeeperClient::start_ahead() {
  // Where another thread starts one it will be there.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) start_if_needed();
}

// Under the lock.
void KeeperClient::start_if_needed() {
  std::vector<std::string> arguments = arguments_();
  if (keeper_ && owner_ == getpid() && arguments == started_with_) return;
  try {
    auto [ours, keepers] = sys::socket_pair(sys::SocketType::seqpacket);
    const UniqueFd socket = move_up(keepers);
    const UniqueFd program = move_up(guest::make_guest_program_file());
    SpawnPlan plan;
    reap_launcher();
    launcher_ = plan.start(socket.get(), program.get(), arguments);
    started_with_ = std::move(arguments);
    keeper_ = std::make_shared<KeeperConnection>(std::move(ours), silence_);
    owner_ = getpid();
  } catch (const std::system_error& error) {
    refuse("the keeper of sandboxes did not start", error.what(), error.code().value());
  }
}

// Another thread may have started the next meanwhile.
void KeeperClient::forget(const std::shared_ptr<KeeperConnection>& keeper) {
  const std::lock_guard lock(mutex_);
  if (keeper_ == keeper) keeper_.reset();
  reap_launcher();
}

// Its child, the keeper, goes on. Where the application reaps every child itself, or ignores
// SIGCHLD, there is nothing left to wait for.
void KeeperClient::reap_launcher() {
  if (launcher_ < 0) return;
  while (waitpid(launcher_, nullptr, 0) < 0 && errno == EINTR) {
  }
  launcher_ = -1;
}

}  // namespace casemate::local
