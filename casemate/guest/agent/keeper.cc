#include "casemate/guest/agent/keeper.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/inheritance.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/keeper_request.h"
#include "casemate/guest/agent/keeper_words.h"
#include "casemate/guest/agent/kept_directory.h"
#include "casemate/guest/agent/starter.h"
#include "casemate/guest/agent/strays.h"
#include "casemate/sys/cgroup.h"
#include "casemate/sys/error.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

constexpr char kEndedEarly[] = "the sandbox's agent ended before it was ready";
// What an event of the keeper's wait is about. Of a sandbox it is four times the number, and what
// of that. Numbers begin at 1.
constexpr std::uint64_t kHostEvent = 0;
constexpr std::uint64_t kWatchEvent = 1;
enum class About : std::uint64_t { process, status, runtime };
std::uint64_t event_of(const KeptSandbox& sandbox, About about) {
  return 4 * sandbox.number + static_cast<std::uint64_t>(about);
}

// Whoever asks for a sandbox and uses it is not held up by the next.
constexpr std::chrono::milliseconds kQuiet{1};

// A sandbox can be found by its sockets only.
bool makes_findable(std::string_view name) {
  return name == kLeaseSocketName || name == kAgentSocketName;
}

class Keeper {
 public:
  // Takes `host` when it can begin.
  Keeper(UniqueFd& host, std::unique_ptr<Starter> starter)
      : starter_(std::move(starter)),
        events_(epoll_create1(EPOLL_CLOEXEC)),
        watches_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    if (!watches_) do_without_watches(errno);
    if (!events_) sys::throw_errno("making an epoll set");
    await(host.get(), kHostEvent);
    if (watches_) await(watches_.get(), kWatchEvent);
    host_ = std::move(host);
  }

  // Throws `std::system_error` where it cannot go on, and has told the host then.
  void run() try {
    // While the host does its own part. What goes wrong here is said at the first request.
    try {
      starter_->get_ready();
    } catch (const std::system_error&) {
    }
    while (host_ || !sandboxes_.empty()) {
      std::array<epoll_event, 64> ready{};
      const int count = epoll_wait(events_.get(), ready.data(), ready.size(), pause());
      if (count < 0 && errno != EINTR) sys::throw_errno("waiting for events");
      if (count == 0 && quiet_) prepare_next();
      bool host_speaks = false;
      for (int i = 0; i < count; ++i) {
        const std::uint64_t subject = ready[static_cast<std::size_t>(i)].data.u64;
        if (subject == kHostEvent) {
          host_speaks = true;
        } else if (subject == kWatchEvent) {
          hear_of_removals();
        } else {
          look_at(subject / 4, static_cast<About>(subject % 4));
        }
      }
      if (host_speaks) hear_host();
      end_overdue();
    }
  } catch (const std::system_error& error) {
    if (host_) report_no_start(host_.get(), error.code().value(), error.what());
    throw;
  }

 private:
  // As epoll_wait takes it: -1 is without end.
  int pause() const {
    std::optional<std::chrono::nanoseconds> rest = quiet_;
    const sys::SteadyTime now = std::chrono::steady_clock::now();
    for (const std::uint64_t number : timed_starts_) {
      const auto until = *sandboxes_.at(number)->start_until - now;
      rest = rest ? std::min(*rest, until) : until;
    }
    if (!rest) return -1;
    const auto whole = std::chrono::ceil<std::chrono::milliseconds>(*rest).count();
    return static_cast<int>(std::clamp<std::int64_t>(whole, 0, std::numeric_limits<int>::max()));
  }

  // What goes wrong is said to whoever asks for a sandbox.
  void prepare_next() {
    quiet_.reset();
    try {
      starter_->prepare_next();
    } catch (const std::system_error&) {
    }
  }

  // One that hangs would hold up every other that the host asks for.
  void end_overdue() {
    const std::set<std::uint64_t> starts = timed_starts_;
    for (const std::uint64_t number : starts) {
      KeptSandbox& sandbox = *sandboxes_.at(number);
      if (*sandbox.start_until > std::chrono::steady_clock::now()) continue;
      settle(sandbox, ETIMEDOUT, "the container's runtime took too long to start it");
      end(sandbox);
    }
  }

  // Then a sandbox whose directory is wiped lives until its users let go of it.
  void do_without_watches(int error) {
    unwatched_ = std::string("; a wiped state directory goes unnoticed (inotify: ") +
                 std::generic_category().message(error) + ")";
  }

  void await(int descriptor, std::uint64_t subject) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = subject;
    if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) < 0) {
      sys::throw_errno("waiting for a descriptor");
    }
  }

  // An agent that was just cloned still has the keeper's descriptors, so that closing one here is
  // not enough.
  void close_awaited(UniqueFd& descriptor) {
    if (descriptor) epoll_ctl(events_.get(), EPOLL_CTL_DEL, descriptor.get(), nullptr);
    descriptor.reset();
  }

  void look_at(std::uint64_t number, About about) {
    const auto found = sandboxes_.find(number);
    if (found == sandboxes_.end()) return;
    KeptSandbox& sandbox = *found->second;
    switch (about) {
      case About::process:
        close_awaited(sandbox.process);
        reap(sandbox.pid);
        break;
      case About::status:
        hear_agent(sandbox);
        break;
      case About::runtime:
        hear_runtime(sandbox);
        break;
    }
    if (!is_over(sandbox)) return;
    bury(sandbox);
    sandboxes_.erase(found);
  }

  // Its agent has ended, and with it every process of its pid namespace: the kernel reaps them
  // before it reports the end of pid 1. One whose agent never said a word has ended when nobody has
  // the other end of its connection.
  static bool is_over(const KeptSandbox& sandbox) {
    if (sandbox.runtime || sandbox.process) return false;
    return sandbox.pid > 0 || !sandbox.status;
  }

  // Whoever wiped the state directory (a logout) left its sandboxes where nobody finds them.
  void hear_of_removals() {
    alignas(inotify_event) std::array<char, 4096> buffer;
    const ssize_t size = read(watches_.get(), buffer.data(), buffer.size());
    for (ssize_t at = 0; at < size;) {
      inotify_event event;
      std::memcpy(&event, &buffer[static_cast<std::size_t>(at)], sizeof event);
      const char* name = &buffer[static_cast<std::size_t>(at) + sizeof event];
      at += static_cast<ssize_t>(sizeof event + event.len);
      if (event.len == 0 || !makes_findable(name)) continue;
      for (const auto& [number, sandbox] : sandboxes_) {
        if (sandbox->watch == event.wd) end(*sandbox);
      }
    }
  }

  void hear_host() {
    CreateSandbox request{};
    sys::ReceivedMessage message;
    try {
      message = sys::receive_message(
          host_.get(), {reinterpret_cast<char*>(&request), sizeof request}, sys::Blocking::no);
    } catch (const std::system_error&) {
      message.bytes = 0;
    }
    if (message.would_block) return;
    if (message.bytes == 0) {
      close_awaited(host_);
      quiet_.reset();
      starter_->drop_next();
      end_unpublished();
      return;
    }
    if (message.bytes == sizeof(GiveUpSandbox) && !message.truncated) {
      // Both begin with the number.
      give_up(request.number);
      return;
    }
    if (message.truncated || message.bytes != sizeof request ||
        !is_sound(request, message.descriptors.size()) || sandboxes_.contains(request.number)) {
      answer(request.number, EPROTO, "the keeper did not understand its host");
      return;
    }
    try {
      create(request, std::move(message.descriptors));
    } catch (const std::system_error& error) {
      answer(request.number, error.code().value(), error.what());
      // What refused it may be mended by the next time, which another keeper finds.
      if (starter_->refused()) host_.reset();
    }
  }

  void give_up(std::uint64_t number) {
    const auto found = sandboxes_.find(number);
    if (found == sandboxes_.end()) return answer(number, ECANCELED, "");
    found->second->answered = true;
    timed_starts_.erase(number);
    found->second->given_up = true;
    end(*found->second);
  }

  // The host is gone. What it did not publish nobody else can have found; who holds what it did
  // publish is the agents' business.
  void end_unpublished() {
    for (const auto& [number, sandbox] : sandboxes_) {
      if (!is_published(sandbox->directory.get())) end(*sandbox);
    }
  }

  // What a runtime started does not end with it: that is seen to once it has ended, which it may
  // have done before its container's first process has said a word.
  void end(KeptSandbox& sandbox) {
    sandbox.doomed = true;
    if (sandbox.process) kill(sandbox.pid, SIGKILL);
    if (sandbox.runtime) {
      kill(sandbox.runtime_pid, SIGKILL);
    } else if (sandbox.runtime_pid > 0 && sandbox.pid <= 0) {
      end_strays();
    }
  }

  void create(const CreateSandbox& request, std::vector<UniqueFd> descriptors) {
    quiet_.reset();
    starter_->get_ready();
    // A worker of the last runtime's may have ended a moment after it.
    if (had_runtime_) reap_strays();
    auto sandbox = std::make_unique<KeptSandbox>();
    StartPlan plan = take_apart(request, std::move(descriptors), *sandbox);
    starter_->start(std::move(plan), *sandbox);
    KeptSandbox& kept = *sandbox;
    sandboxes_.emplace(request.number, std::move(sandbox));
    // Who has asked twice will ask again.
    if (std::exchange(was_asked_, true)) quiet_ = kQuiet;
    try {
      if (kept.pid > 0) know_agent(kept);
      if (kept.start_until) timed_starts_.insert(kept.number);
      if (kept.runtime_pid > 0) {
        had_runtime_ = true;
        kept.runtime = sys::open_pid(kept.runtime_pid);
        await(kept.runtime.get(), event_of(kept, About::runtime));
      }
      await(kept.status.get(), event_of(kept, About::status));
      const std::string path = "/proc/self/fd/" + std::to_string(kept.directory.get());
      if (watches_) {
        kept.watch = inotify_add_watch(watches_.get(), path.c_str(), IN_DELETE);
        if (kept.watch < 0) do_without_watches(errno);
      }
    } catch (...) {
      kept.answered = true;  // by the caller
      timed_starts_.erase(kept.number);
      end_unheard(kept);
      sandboxes_.erase(request.number);
      throw;
    }
  }

  // One of which no event may ever tell.
  void end_unheard(KeptSandbox& sandbox) {
    // Neither was waited for yet, so both numbers are theirs.
    for (const pid_t pid : {sandbox.pid, sandbox.runtime_pid}) {
      if (pid <= 0) continue;
      kill(pid, SIGKILL);
      reap(pid);
    }
    close_awaited(sandbox.process);
    close_awaited(sandbox.runtime);
    close_awaited(sandbox.status);
    if (sandbox.runtime_pid > 0) end_strays();
    bury(sandbox);
  }

  void know_agent(KeptSandbox& sandbox) {
    sandbox.process = sys::open_pid(sandbox.pid);
    await(sandbox.process.get(), event_of(sandbox, About::process));
  }

  void hear_agent(KeptSandbox& sandbox) {
    AgentReport report{};
    pid_t sender = -1;
    const ssize_t count = receive_report(sandbox.status.get(), report, sender);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const bool contained = sandbox.runtime_pid > 0;
    if (contained && count == 1) return meet_agent(sandbox, sender);
    // A container's connection is open as long as there is one.
    if (!contained || count <= 0) close_awaited(sandbox.status);
    if (count == sizeof report) {
      report.text[sizeof report.text - 1] = '\0';
      const std::string made = starter_->description() + unwatched_;
      settle(sandbox, report.error, report.error == 0 ? made.c_str() : report.text);
    } else if (!contained) {
      settle_early_end(sandbox);
    }
  }

  // The first that a contained agent says; its number comes from the kernel.
  void meet_agent(KeptSandbox& sandbox, pid_t number) {
    if (sandbox.pid > 0 || number <= 0) return;
    sandbox.pid = number;
    try {
      know_agent(sandbox);
    } catch (const std::system_error&) {
      // It has ended since.
    }
  }

  void hear_runtime(KeptSandbox& sandbox) {
    int status = 0;
    while (waitpid(sandbox.runtime_pid, &status, 0) < 0 && errno == EINTR) {
    }
    close_awaited(sandbox.runtime);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      settle(sandbox, EREMOTEIO, last_words(sandbox.said.get()).c_str());
      sandbox.doomed = true;
    }
    if (sandbox.doomed) {
      end(sandbox);
      end_strays();
    }
    sandbox.said.reset();
    reap_strays();
  }

  bool is_known(pid_t pid) const {
    return std::ranges::any_of(sandboxes_, [pid](const auto& entry) {
      return entry.second->pid == pid ||
             (entry.second->runtime && entry.second->runtime_pid == pid);
    });
  }

  void end_strays() {
    guest::end_strays([this](pid_t pid) { return is_known(pid); });
  }

  void reap_strays() {
    guest::reap_strays([this](pid_t pid) {
      return std::ranges::any_of(sandboxes_, [pid](const auto& entry) {
        return entry.second->pid == pid || entry.second->runtime_pid == pid;
      });
    });
  }

  void bury(KeptSandbox& sandbox) {
    if (sandbox.status) hear_agent(sandbox);
    close_awaited(sandbox.status);
    if (sandbox.watch >= 0) inotify_rm_watch(watches_.get(), sandbox.watch);
    if (sandbox.runtime_pid > 0) reap_strays();
    settle_early_end(sandbox);
    bool gone = starter_->remove_rest(sandbox);
    for (const std::string& group : sandbox.control_groups) {
      if (sys::remove_control_group(group) != 0) gone = false;
    }
    // Otherwise it stays for the next sweep, which finds the rest by it.
    if (gone) remove_directory(sandbox.directory.get());
    if (sandbox.given_up) answer(sandbox.number, ECANCELED, "");
  }

  void settle(KeptSandbox& sandbox, int error, const char* text) {
    timed_starts_.erase(sandbox.number);
    if (!std::exchange(sandbox.answered, true)) answer(sandbox.number, error, text);
  }

  // Its host asks once more. What kills processes that wait may have killed the next, too: that is
  // made when it is asked for.
  void settle_early_end(KeptSandbox& sandbox) {
    if (sandbox.answered) return;
    quiet_.reset();
    starter_->drop_next();
    settle(sandbox, ESRCH, kEndedEarly);
  }

  void answer(std::uint64_t number, int error, const char* text) {
    KeeperAnswer value{};
    value.number = number;
    value.error = error;
    std::snprintf(value.text, sizeof value.text, "%s", text);
    if (host_) static_cast<void>(sys::try_send_value(host_.get(), value));
  }

  std::unique_ptr<Starter> starter_;
  UniqueFd host_;
  UniqueFd events_;
  UniqueFd watches_;
  // Said to the host with each sandbox; empty where its directory is watched.
  std::string unwatched_;
  // By number.
  std::map<std::uint64_t, std::unique_ptr<KeptSandbox>> sandboxes_;
  // Of those that are being started, the ones that may not take as long as they like.
  std::set<std::uint64_t> timed_starts_;
  // When nothing has happened for so long, the next start is prepared. Absent: it is, or nobody is
  // expected to ask.
  std::optional<std::chrono::milliseconds> quiet_{0};
  bool was_asked_ = false;
  bool had_runtime_ = false;
};

}  // namespace

void report_no_start(int host, int error, const char* text) noexcept {
  KeeperAnswer value{};
  value.error = error;
  std::snprintf(value.text, sizeof value.text, "%s", text);
  static_cast<void>(sys::try_send_value(host, value, sys::Blocking::no));
}

int run_keeper(UniqueFd host, const MakeStarter& make_starter) noexcept {
  try {
    // Started through a descriptor, it would be called by its number.
    prctl(PR_SET_NAME, "casemate-keeper");
    // The host's session keyring would stay with every program.
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
    drop_inherited_bounds();
    Keeper(host, make_starter()).run();
    return 0;
  } catch (const std::system_error& error) {
    if (host) report_no_start(host.get(), error.code().value(), error.what());
  } catch (const std::exception& error) {
    if (host) report_no_start(host.get(), EIO, error.what());
  }
  return 1;
}

}  // namespace casemate::guest
