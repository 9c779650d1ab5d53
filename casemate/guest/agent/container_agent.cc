#include "casemate/guest/agent/container_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/account_place.h"
#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/identity.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/leases.h"
#include "casemate/guest/agent/serve_call.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// Ids of one sandbox: enough that none comes again while anybody could remember it, so few that
// sandboxes on one host seldom meet.
constexpr std::uint32_t kIdsOfASandbox = 65536;
// What cannot be removed by then will not be the next time either.
constexpr int kMostClearings = 5;

std::string shared_path(const char* name) { return std::string(kSharedDirectory) + "/" + name; }

// The ids of this sandbox, at random among those that its user namespace has to spare: where that
// is the machine's own, two sandboxes shall hardly have the same.
IdRange pick_ids() {
  const std::string map = sys::read_file_at(AT_FDCWD, "/proc/self/uid_map", 64 * 1024);
  std::optional<IdRange> range = spare_ids(map);
  if (!range || range->count < 3) sys::throw_error(EPERM, "finding user ids for calls");
  if (range->count <= kIdsOfASandbox) return *range;
  std::uint32_t random = 0;
  if (getentropy(&random, sizeof random) < 0) sys::throw_errno("choosing user ids");
  const std::uint32_t blocks = range->count / kIdsOfASandbox;
  return {range->first + random % blocks * kIdsOfASandbox, kIdsOfASandbox};
}

UniqueFd bind_in_shared(const char* name) {
  UniqueFd socket = sys::make_stream_socket();
  sys::bind_to_path(socket.get(), shared_path(name));
  return socket;
}

class ContainerAgent {
 public:
  ContainerAgent(const ContainerPlan& plan, UniqueFd first_lease)
      : ids_(pick_ids()),
        config_{.work_dir = plan.work_dir,
                .open_files = plan.open_files,
                .cpu_seconds = plan.cpu_seconds,
                .shared_id = ids_.first},
        calls_(bind_in_shared(kAgentSocketName)),
        leases_(bind_in_shared(kLeaseSocketName), std::move(first_lease), plan.keep_idle_ms) {
    AccountPlace::prepare_sandbox(config_);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    children_.reset(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!children_) sys::throw_errno("watching for children");
    sys::start_listening(calls_.get());
    leases_.start_listening();
  }

  // Returns when the sandbox shall end.
  void run() {
    while (!leases_.over()) {
      std::array<pollfd, 3> entries{{
          {.fd = children_.get(), .events = POLLIN, .revents = 0},
          {.fd = calls_.get(), .events = POLLIN, .revents = 0},
          {.fd = leases_.fd(), .events = POLLIN, .revents = 0},
      }};
      sys::poll_until(entries, std::nullopt);
      if (entries[0].revents != 0) reap();
      if (entries[1].revents != 0) accept_call();
      if (entries[2].revents != 0) leases_.handle();
    }
  }

 private:
  struct User {
    unsigned id = 0;
    int clearings = 0;
  };

  void reap() {
    signalfd_siginfo ignored;
    while (read(children_.get(), &ignored, sizeof ignored) > 0) {
    }
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      const auto found = users_.find(pid);
      if (found == users_.end()) continue;
      const User user = found->second;
      users_.erase(found);
      // A call that did not say that all of it is gone, or could say nothing any more.
      if (status != 0) uncleared_[user.id] = user.clearings;
    }
    // Also those for whom there was no room before: something has just ended.
    std::erase_if(uncleared_, [&](const auto& each) { return clear({each.first, each.second}); });
  }

  // Whether that has begun, or was tried often enough.
  bool clear(User user) {
    kill_account(config_, user.id);
    if (user.clearings == kMostClearings) return lost_.insert(user.id).second;
    const pid_t pid = fork();
    if (pid == 0) {
      become_child("casemate-clear", std::nullopt);
      _exit(clear_account(config_, user.id) ? 0 : 1);
    }
    if (pid > 0) users_[pid] = {user.id, user.clearings + 1};
    return pid > 0;
  }

  bool is_taken(unsigned id) const {
    return lost_.contains(id) || uncleared_.contains(id) ||
           std::any_of(users_.begin(), users_.end(),
                       [&](const auto& each) { return each.second.id == id; });
  }

  unsigned next_user() {
    for (std::uint32_t tries = 1; tries < ids_.count; ++tries) {
      last_ = last_ + 1 < ids_.count ? last_ + 1 : 1;
      if (!is_taken(ids_.first + last_)) return ids_.first + last_;
    }
    sys::throw_error(EAGAIN, "finding a user id for a call");
  }

  void accept_call() {
    UniqueFd connection(accept4(calls_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) return;
    try {
      const unsigned user = next_user();
      const pid_t pid = fork();
      if (pid < 0) sys::throw_errno("cloning a process");
      if (pid == 0) become_call(std::move(connection), user);
      users_[pid] = {user, 0};
    } catch (const std::system_error& error) {
      // As a call's own process says it; then the connection is closed.
      FrameWriter writer(connection.get());
      writer.put(wire(FrameType::failed),
                 encode(Failure{FailureReason::no_resources, error.code().value(), error.what()}));
      try {
        writer.flush();  // without waiting: it is the first thing on that connection
      } catch (const std::system_error&) {
      }
    }
  }

  static void become_child(const char* name, std::optional<int> connection) {
    const int kept[] = {0, 1, 2, connection.value_or(0)};
    sys::close_all_except(kept);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_NAME, name);
  }

  [[noreturn]] void become_call(UniqueFd connection, unsigned user) {
    int status = 1;
    try {
      become_child("casemate-call", connection.get());
      AccountPlace place(config_, user);
      status = serve_call(std::move(connection), place);
    } catch (const std::exception&) {
    }
    _exit(status);
  }

  IdRange ids_;
  AccountPlace::Config config_;
  UniqueFd children_;
  UniqueFd calls_;
  Leases leases_;
  // Whose call a process is, or after whom it clears up.
  std::map<pid_t, User> users_;
  // After whom somebody has still to clear up, with how often that was tried.
  std::map<unsigned, int> uncleared_;
  // Whose files could not be removed: their ids are never used again.
  std::set<unsigned> lost_;
  std::uint32_t last_ = 0;
};

void report(int host, int error, const char* text) noexcept {
  AgentReport answer{};
  answer.error = error;
  std::snprintf(answer.text, sizeof answer.text, "%s", text);
  static_cast<void>(send(host, &answer, sizeof answer, MSG_NOSIGNAL));
}

}  // namespace

int run_container_agent(const ContainerPlan& plan) noexcept {
  // Open until it was said that the sandbox is ready, or why not.
  UniqueFd reports;
  try {
    sys::close_from(3);
    sys::make_undumpable();
    prctl(PR_SET_NAME, "casemate-agent");
    umask(0);
    UniqueFd lease = sys::connect_to_address(shared_path(kFirstLeaseName));
    reports.reset(fcntl(lease.get(), F_DUPFD_CLOEXEC, 3));
    if (!reports) sys::throw_errno("keeping a connection");
    empty_bounding_set();
    ContainerAgent agent(plan, std::move(lease));
    report(reports.get(), 0, "");
    reports.reset();
    agent.run();
    return 0;
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "casemate-guest: %s\n", error.what());
    if (reports) report(reports.get(), error.code().value(), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "casemate-guest: %s\n", error.what());
    if (reports) report(reports.get(), EIO, error.what());
  }
  return 1;
}

}  // namespace casemate::guest
