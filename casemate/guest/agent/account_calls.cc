#include "casemate/guest/agent/account_calls.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/identity.h"
#include "casemate/guest/agent/serve_call.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/process.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// Ids of one sandbox: enough that none comes again while anybody could remember it, so few that
// sandboxes on one host seldom meet.
constexpr std::uint32_t kIdsOfASandbox = 65536;
// What cannot be removed by then will not be the next time either.
constexpr int kMostClearings = 5;

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

UniqueFd watch_children() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  UniqueFd children(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!children) sys::throw_errno("watching for children");
  return children;
}

}  // namespace

AccountCalls::AccountCalls(AccountPlace::Config config)
    : ids_(pick_ids()), config_(std::move(config)), children_(watch_children()) {
  config_.shared_id = ids_.first;
  AccountPlace::prepare_sandbox(config_);
}

void AccountCalls::reap() {
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
bool AccountCalls::clear(User user) {
  kill_account(user.id);
  if (user.clearings == kMostClearings) return lost_.insert(user.id).second;
  const pid_t pid = fork();
  if (pid == 0) {
    become_child("casemate-clear", std::nullopt);
    _exit(clear_account(config_, user.id) ? 0 : 1);
  }
  if (pid > 0) users_[pid] = {user.id, user.clearings + 1};
  return pid > 0;
}

bool AccountCalls::is_taken(unsigned id) const {
  return lost_.contains(id) || uncleared_.contains(id) ||
         std::any_of(users_.begin(), users_.end(),
                     [&](const auto& each) { return each.second.id == id; });
}

// The first is the sandbox's own, and a call has two.
unsigned AccountCalls::next_user() {
  const std::uint32_t calls = (ids_.count - 1) / 2;
  for (std::uint32_t tries = 0; tries < calls; ++tries) {
    const unsigned user = ids_.first + 1 + 2 * next_;
    next_ = (next_ + 1) % calls;
    if (!is_taken(user)) return user;
  }
  sys::throw_error(EAGAIN, "finding a user id for a call");
}

void AccountCalls::start(UniqueFd connection) {
  try {
    const unsigned user = next_user();
    const pid_t pid = AccountPlace::clone_call(config_);
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

void AccountCalls::become_child(const char* name, std::optional<int> connection) {
  const int kept[] = {0, 1, 2, connection.value_or(0)};
  sys::close_all_except(kept);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_NAME, name);
}

void AccountCalls::become_call(UniqueFd connection, unsigned user) {
  int status = 1;
  try {
    become_child("casemate-call", connection.get());
    AccountPlace place(config_, user);
    status = serve_call(std::move(connection), place);
  } catch (const std::exception&) {
  }
  _exit(status);
}

}  // namespace casemate::guest
