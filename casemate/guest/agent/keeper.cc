#include "casemate/guest/agent/keeper.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/identity.h"
#include "casemate/guest/agent/inheritance.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/sys/cgroup.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// A socket with a name in a directory, not listened on yet. The name goes through /proc because a
// socket address holds 107 bytes and a state directory may be longer.
UniqueFd bind_socket(int directory, const char* name) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) sys::throw_errno("making a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, name);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    sys::throw_errno(std::string("binding ") + name);
  }
  return socket;
}

void write_id_maps(int process, const SandboxIds& ids) {
  // Its number here may be a stranger's in a /proc that was mounted for another pid namespace.
  const std::optional<pid_t> number = sys::number_in_proc(process);
  if (!number) sys::throw_error(ESRCH, "finding the agent in /proc");
  const std::string folder = "/proc/" + std::to_string(*number) + "/";
  sys::write_control_file_at(AT_FDCWD, (folder + "uid_map").c_str(), ids.user_map());
  sys::write_control_file_at(AT_FDCWD, (folder + "gid_map").c_str(), ids.group_map());
}

// Waits until an agent that mounts its /proc first has got so far.
bool has_user_namespace(int status) {
  char said = 0;
  ssize_t size = -1;
  do {
    size = recv(status, &said, 1, MSG_PEEK | MSG_TRUNC);
  } while (size < 0 && errno == EINTR);
  return size == 1 && recv(status, &said, 1, 0) == 1;
}

bool ends_within(const char* text, std::size_t bytes) { return strnlen(text, bytes) < bytes; }

bool is_sound(const CreateSandbox& request, std::size_t descriptors) {
  if (request.number == 0 || request.control_groups > kMaxControlGroups) return false;
  if (request.has_image > 1 || descriptors < 2 + request.has_image) return false;
  if (!ends_within(request.id, sizeof request.id)) return false;
  if (!ends_within(request.work_dir, sizeof request.work_dir)) return false;
  if (request.work_dir[0] != '/' || request.work_dir[1] == '\0') return false;
  for (std::uint32_t i = 0; i < request.control_groups; ++i) {
    const char* path = request.control_group_paths[i];
    if (!ends_within(path, kControlGroupPathBytes) || path[0] != '/') return false;
  }
  return true;
}

struct KeptSandbox {
  // Of the request.
  std::uint64_t number = 0;
  bool answered = false;
  // Its end is to be reported.
  bool given_up = false;
  UniqueFd process;
  pid_t pid = -1;
  // From the agent, until it reported.
  UniqueFd status;
  UniqueFd directory;
  // Of its directory; -1 where there is none.
  int watch = -1;
  std::vector<std::string> control_groups;
};

// What an event of the keeper's wait is about, beside the sandboxes by number.
constexpr std::uint64_t kHostEvent = 0;
constexpr std::uint64_t kWatchEvent = 1;

// A sandbox can be found by its sockets only.
bool makes_findable(std::string_view name) {
  return name == kLeaseSocketName || name == kAgentSocketName;
}

class Keeper {
 public:
  // Takes `host` when it can begin.
  Keeper(UniqueFd& host, const std::optional<SubordinateIds>& subordinate)
      : subordinate_(subordinate),
        self_(sys::open_pid(getpid())),
        events_(epoll_create1(EPOLL_CLOEXEC)),
        watches_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    if (!watches_) do_without_watches(errno);
    if (!events_) sys::throw_errno("making an epoll set");
    await(host.get(), kHostEvent);
    if (watches_) await(watches_.get(), kWatchEvent);
    host_ = std::move(host);
  }

  void run() {
    // While the host does its own part. What goes wrong here is said at the first request.
    try {
      get_ready();
    } catch (const std::system_error&) {
    }
    while (host_ || !sandboxes_.empty()) {
      std::array<epoll_event, 64> ready{};
      const int count = epoll_wait(events_.get(), ready.data(), ready.size(), -1);
      if (count < 0 && errno != EINTR) sys::throw_errno("waiting for events");
      bool host_speaks = false;
      for (int i = 0; i < count; ++i) {
        const std::uint64_t subject = ready[static_cast<std::size_t>(i)].data.u64;
        if (subject == kHostEvent) {
          host_speaks = true;
        } else if (subject == kWatchEvent) {
          hear_of_removals();
        } else {
          look_at(subject / 2, subject % 2 == 0);
        }
      }
      if (host_speaks) hear_host();
    }
  }

 private:
  // Then a sandbox whose directory is wiped lives until its users let go of it.
  void do_without_watches(int error) {
    unwatched_ = std::string("; a wiped state directory goes unnoticed (inotify: ") +
                 std::generic_category().message(error) + ")";
  }

  void get_ready() {
    if (refused_) throw *refused_;
    if (!identity_) {
      try {
        identity_.emplace(subordinate_);
      } catch (const std::system_error& error) {
        refused_ = error;
        throw;
      }
    }
    if (!template_) {
      proc_first_ = identity_->is_root_here() && proc_is_covered();
      template_.emplace();
    }
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

  void look_at(std::uint64_t number, bool ended) {
    const auto found = sandboxes_.find(number);
    if (found == sandboxes_.end()) return;
    if (!ended) return hear_agent(*found->second);
    bury(*found->second);
    sandboxes_.erase(found);
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
        if (sandbox->watch == event.wd) kill(sandbox->pid, SIGKILL);
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
      if (refused_) host_.reset();
    }
  }

  void give_up(std::uint64_t number) {
    const auto found = sandboxes_.find(number);
    if (found == sandboxes_.end()) return answer(number, ECANCELED, "");
    found->second->answered = true;
    found->second->given_up = true;
    kill(found->second->pid, SIGKILL);
  }

  // The host is gone. What it did not publish nobody else can have found; who holds what it did
  // publish is the agents' business.
  void end_unpublished() {
    for (const auto& [number, sandbox] : sandboxes_) {
      if (!is_published(sandbox->directory.get())) kill(sandbox->pid, SIGKILL);
    }
  }

  static bool is_published(int directory) {
    try {
      const std::optional<std::string> path = sys::path_of(directory);
      if (!path) return false;
      const std::string_view parent = std::string_view(*path).substr(0, path->rfind('/'));
      return parent.ends_with(std::string("/") + kPublishedName);
    } catch (const std::system_error&) {
      return true;
    }
  }

  void create(const CreateSandbox& request, std::vector<UniqueFd> descriptors) {
    get_ready();
    template_->add_work_dir(request.work_dir);
    auto sandbox = std::make_unique<KeptSandbox>();
    sandbox->number = request.number;
    sandbox->directory = std::move(descriptors[0]);
    for (std::uint32_t i = 0; i < request.control_groups; ++i) {
      sandbox->control_groups.emplace_back(request.control_group_paths[i]);
    }
    auto [ours, agents] = sys::socket_pair(sys::SocketType::seqpacket);
    const SandboxIds ids = identity_->pick();
    AgentPlan plan;
    plan.root = {.work_dir = request.work_dir,
                 .disk_bytes = request.disk_bytes,
                 .disk_inodes = request.disk_inodes,
                 .one_id = ids.one()};
    plan.place = {.work_dir = request.work_dir,
                  .open_files = request.open_files,
                  .processes = request.processes,
                  .cpu_seconds = request.cpu_seconds,
                  .one_id = ids.one(),
                  .drops_groups = identity_->drops_groups()};
    plan.agent_socket = bind_socket(sandbox->directory.get(), kAgentSocketName);
    plan.lease_socket = bind_socket(sandbox->directory.get(), kLeaseSocketName);
    plan.status = std::move(agents);
    plan.first_lease = std::move(descriptors[1]);
    plan.keep_idle_ms = request.keep_idle_ms;
    const std::ptrdiff_t first_group = 2 + static_cast<std::ptrdiff_t>(request.has_image);
    // Until the clone has its own copy of the mounts.
    std::optional<ImageTemplate> image;
    if (request.has_image != 0) {
      plan.image = std::move(descriptors[2]);
      image.emplace(*template_, plan.image.get(), request.work_dir);
    }
    plan.groups.assign(std::make_move_iterator(descriptors.begin() + first_group),
                       std::make_move_iterator(descriptors.end()));
    plan.keeper = UniqueFd(fcntl(self_.get(), F_DUPFD_CLOEXEC, 0));

    plan.proc_first = proc_first_;
    const pid_t pid =
        sys::clone_process(proc_first_ ? std::uint64_t{CLONE_NEWPID} : kAllNamespaces);
    if (pid == 0) run_agent(std::move(plan));
    sandbox->pid = pid;
    sandbox->status = std::move(ours);
    KeptSandbox& kept = *sandbox;
    sandboxes_.emplace(request.number, std::move(sandbox));
    try {
      kept.process = sys::open_pid(pid);
      await(kept.process.get(), 2 * request.number);
      await(kept.status.get(), 2 * request.number + 1);
      const std::string path = "/proc/self/fd/" + std::to_string(kept.directory.get());
      if (watches_) {
        kept.watch = inotify_add_watch(watches_.get(), path.c_str(), IN_DELETE);
        if (kept.watch < 0) do_without_watches(errno);
      }
      // Else it has reported why there is none.
      if (proc_first_ && !has_user_namespace(kept.status.get())) return;
      write_id_maps(kept.process.get(), ids);
      if (send(kept.status.get(), "g", 1, MSG_NOSIGNAL) != 1) sys::throw_errno("starting an agent");
    } catch (...) {
      kept.answered = true;  // by the caller
      kill(pid, SIGKILL);
      throw;
    }
  }

  void hear_agent(KeptSandbox& sandbox) {
    AgentReport report{};
    const ssize_t count = recv(sandbox.status.get(), &report, sizeof report, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    close_awaited(sandbox.status);
    if (count != sizeof report) {
      settle(sandbox, ESRCH, "the sandbox's agent ended before it was ready");
      return;
    }
    report.text[sizeof report.text - 1] = '\0';
    const std::string made = identity_->description() + unwatched_;
    settle(sandbox, report.error, report.error == 0 ? made.c_str() : report.text);
  }

  // Its agent has ended, and with it every process of its pid namespace: the kernel reaps them
  // before it reports the end of pid 1.
  void bury(KeptSandbox& sandbox) {
    if (sandbox.status) hear_agent(sandbox);
    close_awaited(sandbox.process);
    if (sandbox.watch >= 0) inotify_rm_watch(watches_.get(), sandbox.watch);
    waitpid(sandbox.pid, nullptr, 0);
    settle(sandbox, ESRCH, "the sandbox's agent ended before it was ready");
    for (const std::string& group : sandbox.control_groups) sys::remove_control_group(group);
    remove_directory(sandbox.directory.get());
    if (sandbox.given_up) answer(sandbox.number, ECANCELED, "");
  }

  void settle(KeptSandbox& sandbox, int error, const char* text) {
    if (!std::exchange(sandbox.answered, true)) answer(sandbox.number, error, text);
  }

  // Where it is now, under whatever name a dispose or a sweep has given it. Files first: a name
  // that another sandbox took in between stays, because its directory is not empty.
  static void remove_directory(int directory) {
    for (const char* name :
         {kAgentSocketName, kLeaseSocketName, kBusyLockName, kNextRecordName, kRecordName}) {
      unlinkat(directory, name, 0);
    }
    try {
      while (const std::optional<std::string> path = sys::path_of(directory)) {
        if (rmdir(path->c_str()) == 0 || errno != ENOENT) return;
      }
    } catch (const std::system_error&) {
    }
  }

  void answer(std::uint64_t number, int error, const char* text) {
    KeeperAnswer value{};
    value.number = number;
    value.error = error;
    std::snprintf(value.text, sizeof value.text, "%s", text);
    if (host_) static_cast<void>(send(host_.get(), &value, sizeof value, MSG_NOSIGNAL));
  }

  const std::optional<SubordinateIds> subordinate_;
  UniqueFd host_;
  UniqueFd self_;
  std::optional<KeeperIdentity> identity_;
  // Why the identity could not be had: it is tried once, a half-made user namespace cannot be left.
  std::optional<std::system_error> refused_;
  std::optional<RootTemplate> template_;
  bool proc_first_ = false;
  UniqueFd events_;
  UniqueFd watches_;
  // Said to the host with each sandbox; empty where its directory is watched.
  std::string unwatched_;
  // By number.
  std::map<std::uint64_t, std::unique_ptr<KeptSandbox>> sandboxes_;
};

}  // namespace

void report_no_start(int host, int error, const char* text) noexcept {
  KeeperAnswer value{};
  value.error = error;
  std::snprintf(value.text, sizeof value.text, "%s", text);
  static_cast<void>(send(host, &value, sizeof value, MSG_NOSIGNAL | MSG_DONTWAIT));
}

int run_keeper(UniqueFd host, const std::optional<SubordinateIds>& subordinate) noexcept {
  try {
    // Started through a descriptor, it would be called by its number.
    prctl(PR_SET_NAME, "casemate-keeper");
    // The host's session keyring would stay with every program.
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
    drop_inherited_bounds();
    Keeper(host, subordinate).run();
    return 0;
  } catch (const std::system_error& error) {
    if (host) report_no_start(host.get(), error.code().value(), error.what());
  } catch (const std::exception& error) {
    if (host) report_no_start(host.get(), EIO, error.what());
  }
  return 1;
}

}  // namespace casemate::guest
