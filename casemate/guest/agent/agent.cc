#include "casemate/guest/agent/agent.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/call_network.h"
#include "casemate/guest/agent/inode_reserve.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/leases.h"
#include "casemate/guest/agent/linux_place.h"
#include "casemate/guest/agent/patient_listener.h"
#include "casemate/guest/agent/program_group.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/guest/agent/serve_call.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// What sandbox an agent is to be.
struct AgentPlan {
  RootPlan root;
  LinuxPlace::Config place;
  // Held for as long as the sandbox lives; empty for the image `host`.
  UniqueFd image;
  // Bound by the keeper, listened on here: that is how others see that the sandbox is ready.
  UniqueFd agent_socket;
  UniqueFd lease_socket;
  // There from the start: a sandbox that nobody holds any more ends, however early that is.
  UniqueFd first_lease;
  std::uint64_t keep_idle_ms = 0;
  // Files of the control groups that it lives in (`Place::join_groups`).
  std::vector<UniqueFd> groups;
  // Where its programs are counted by nobody outside.
  std::optional<ProgramGroup> programs;
  // Of a contained one, the connection to its keeper, whose end ends the sandbox.
  UniqueFd keeper;
};

UniqueFd take_first(std::vector<UniqueFd>& descriptors) {
  if (descriptors.empty()) sys::throw_error(EPROTO, "hearing from the keeper");
  UniqueFd first = std::move(descriptors.front());
  descriptors.erase(descriptors.begin());
  return first;
}

// Absent when the keeper is gone.
std::optional<AgentPlan> hear_plan(int keeper) {
  CreateSandbox request{};
  sys::ReceivedMessage message = sys::receive_message(
      keeper, {reinterpret_cast<char*>(&request), sizeof request}, sys::Blocking::yes);
  if (message.bytes == 0) return std::nullopt;
  if (message.bytes != sizeof request || message.truncated) {
    sys::throw_error(EPROTO, "hearing from the keeper");
  }
  AgentPlan plan;
  plan.root = {.work_dir = request.work_dir,
               .disk_bytes = request.disk_bytes,
               .disk_inodes = request.disk_inodes};
  plan.place = {.work_dir = request.work_dir,
                .open_files = request.open_files,
                .processes = request.processes,
                .cpu_seconds = request.cpu_seconds};
  plan.keep_idle_ms = request.keep_idle_ms;
  std::vector<UniqueFd>& descriptors = message.descriptors;
  plan.agent_socket = take_first(descriptors);
  plan.lease_socket = take_first(descriptors);
  plan.first_lease = take_first(descriptors);
  if (request.has_image != 0) plan.image = take_first(descriptors);
  if (request.has_program_group != 0) {
    if (descriptors.size() < kProgramGroupFiles) {
      sys::throw_error(EPROTO, "hearing from the keeper");
    }
    plan.programs = ProgramGroup{};
    for (UniqueFd* file :
         {&plan.programs->members, &plan.programs->memory_events, &plan.programs->fork_events}) {
      *file = take_first(descriptors);
    }
  }
  plan.groups = std::move(descriptors);
  return plan;
}

void become_root_inside(const SpareParts& parts) {
  // The calls by number: glibc's wrappers are for processes with threads.
  if (parts.drops_groups && syscall(SYS_setgroups, 0, nullptr) < 0) {
    sys::throw_errno("dropping groups");
  }
  // Then there is no other user, and the capabilities of this one are enough.
  if (parts.one_id) return;
  if (syscall(SYS_setresgid, 0, 0, 0) < 0) sys::throw_errno("becoming group 0 of the sandbox");
  if (syscall(SYS_setresuid, 0, 0, 0) < 0) sys::throw_errno("becoming user 0 of the sandbox");
}

void join_groups(const std::vector<UniqueFd>& groups) {
  for (const UniqueFd& group : groups) {
    if (write(group.get(), "0", 1) != 1) sys::throw_errno("joining the agent's control group");
  }
}

void keep_group(std::vector<int>& kept, const std::optional<ProgramGroup>& group) {
  if (!group) return;
  for (const UniqueFd* file : {&group->members, &group->memory_events, &group->fork_events}) {
    kept.push_back(file->get());
  }
}

// The machine's root may mount a /proc wherever it is; who is root of a user namespace only, where
// nothing is hidden of another. What is mounted in the sandbox later is measured by this one.
UniqueFd mount_proc_first(int status) {
  UniqueFd proc = sys::make_proc();
  if (unshare(static_cast<int>(kAllNamespaces & ~std::uint64_t{CLONE_NEWPID})) < 0) {
    sys::throw_errno("making a user namespace");
  }
  if (!sys::try_send_value(status, 'u')) sys::throw_errno("telling the keeper");
  return proc;
}

// All that is the same in every sandbox of a keeper.
void become_spare(const SpareParts& parts, int status) {
  const int kept[] = {0, 1, 2, status, parts.keeper.get()};
  sys::close_all_except(kept);
  prctl(PR_SET_NAME, "casemate-spare");
  UniqueFd proc;
  if (parts.proc_first) proc = mount_proc_first(status);
  char go = 0;
  if (read(status, &go, 1) != 1) sys::throw_error(ESRCH, "waiting for the keeper");
  become_root_inside(parts);
  sys::die_with_parent(parts.keeper.get());
  sys::make_undumpable();
  empty_bounding_set();
  umask(0);
  enter_root(std::move(proc));
  if (sethostname("sandbox", 7) < 0) sys::throw_errno("naming the sandbox");
  raise_loopback();
}

void become_agent(const AgentPlan& plan) {
  prctl(PR_SET_NAME, "casemate-agent");
  // Before anything is made that shall be counted.
  join_groups(plan.groups);
  furnish_root(plan.root);
}

// Of a container's runtime nothing stays: what it left as the standard streams leads out.
void become_contained_agent(const AgentPlan& plan, int status) {
  join_groups(plan.groups);
  std::vector<int> kept{0,
                        1,
                        2,
                        status,
                        plan.agent_socket.get(),
                        plan.lease_socket.get(),
                        plan.first_lease.get(),
                        plan.keeper.get()};
  if (plan.image) kept.push_back(plan.image.get());
  keep_group(kept, plan.programs);
  sys::close_all_except(kept);
  if (syscall(SYS_setgroups, 0, nullptr) < 0) sys::throw_errno("dropping groups");
  const UniqueFd null = sys::open_at(AT_FDCWD, "/dev/null", O_RDWR);
  for (const int standard : {0, 1, 2}) {
    if (dup2(null.get(), standard) < 0) sys::throw_errno("closing the standard streams");
  }
  sys::make_undumpable();
  empty_bounding_set();
  prctl(PR_SET_NAME, "casemate-agent");
  umask(0);
  furnish_container(plan.root);
  raise_loopback();
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

class Agent {
 public:
  explicit Agent(AgentPlan plan)
      : plan_(std::move(plan)),
        children_(watch_children()),
        quota_(sys::open_at(AT_FDCWD, kQuotaDirectory, O_PATH | O_DIRECTORY)),
        listener_(plan_.agent_socket.get()),
        leases_(std::move(plan_.lease_socket), std::move(plan_.first_lease), plan_.keep_idle_ms) {}

  void listen_on_sockets() {
    leases_.start_listening();
    sys::start_listening(plan_.agent_socket.get());
  }

  // Returns when the sandbox shall end.
  void run() {
    fill_inode_reserve(quota_.get());
    while (!leases_.over()) {
      std::array<pollfd, 4> entries{{
          {.fd = children_.get(), .events = POLLIN, .revents = 0},
          {.fd = listener_.fd(), .events = POLLIN, .revents = 0},
          {.fd = leases_.fd(), .events = POLLIN, .revents = 0},
          {.fd = plan_.keeper.get(), .events = POLLIN, .revents = 0},
      }};
      sys::poll_until(entries, std::nullopt);
      if (entries[0].revents != 0) reap();
      if (entries[1].revents != 0) accept_call();
      if (entries[2].revents != 0) leases_.handle();
      // It says nothing more.
      if (entries[3].revents != 0) return;
    }
  }

 private:
  void reap() {
    signalfd_siginfo ignored;
    while (read(children_.get(), &ignored, sizeof ignored) > 0) {
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    // What a call had is free now, with its mounts.
    fill_inode_reserve(quota_.get());
  }

  void accept_call() {
    UniqueFd connection = listener_.accept(sys::Blocking::yes);
    if (!connection) return;
    try {
      if (sys::clone_process(CLONE_NEWNS | CLONE_NEWIPC) == 0) become_call(std::move(connection));
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

  [[noreturn]] void become_call(UniqueFd connection) {
    int status = 1;
    try {
      std::vector<int> kept{0, 1, 2, connection.get()};
      keep_group(kept, plan_.programs);
      sys::close_all_except(kept);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      prctl(PR_SET_NAME, "casemate-call");
      LinuxPlace place(plan_.place, plan_.programs ? &*plan_.programs : nullptr);
      status = serve_call(std::move(connection), place);
    } catch (const std::exception&) {
    }
    _exit(status);
  }

  AgentPlan plan_;
  UniqueFd children_;
  UniqueFd quota_;
  PatientListener listener_;
  Leases leases_;
};

}  // namespace

void empty_bounding_set() {
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability) < 0) sys::throw_errno("emptying the bounding set");
  }
}

namespace {

void report(int status, int error, const char* text) {
  AgentReport answer{};
  answer.error = error;
  std::snprintf(answer.text, sizeof answer.text, "%s", text);
  static_cast<void>(sys::try_send_value(status, answer));
}

}  // namespace

void send_plan(int agent, const StartPlan& plan) {
  std::vector<int> descriptors{plan.agent_socket.get(), plan.lease_socket.get(),
                               plan.first_lease.get()};
  if (plan.image) descriptors.push_back(plan.image.get());
  keep_group(descriptors, plan.programs);
  for (const UniqueFd& group : plan.groups) descriptors.push_back(group.get());
  sys::send_message(agent, {reinterpret_cast<const char*>(&plan.request), sizeof plan.request},
                    descriptors, sys::Blocking::yes);
}

namespace {

// What `become` makes of this process, which says over `status` that it is ready, or why not.
[[noreturn]] void run(UniqueFd status, const std::function<std::optional<AgentPlan>()>& become) {
  try {
    std::optional<AgentPlan> plan = become();
    // No sandbox was wanted of it.
    if (!plan) _exit(0);
    plan->groups.clear();
    Agent agent(*std::move(plan));
    agent.listen_on_sockets();
    report(status.get(), 0, "");
    status.reset();
    agent.run();
    _exit(0);
  } catch (const std::system_error& error) {
    if (status) report(status.get(), error.code().value(), error.what());
  } catch (const std::exception& error) {
    if (status) report(status.get(), EIO, error.what());
  }
  _exit(1);
}

}  // namespace

void run_agent(SpareParts parts) noexcept {
  const int status = parts.status.get();
  run(std::move(parts.status), [&parts, status] {
    become_spare(parts, status);
    std::optional<AgentPlan> plan = hear_plan(status);
    parts.keeper.reset();
    if (!plan) return plan;
    plan->root.one_id = parts.one_id;
    plan->place.one_id = parts.one_id;
    plan->place.drops_groups = parts.drops_groups;
    become_agent(*plan);
    return plan;
  });
}

void run_contained_agent(UniqueFd keeper) noexcept {
  const int status = keeper.get();
  run(std::move(keeper), [status] {
    if (!sys::try_send_value(status, kAgentHello)) sys::throw_errno("telling the keeper");
    std::optional<AgentPlan> plan = hear_plan(status);
    if (!plan) return plan;
    plan->keeper = sys::duplicate(status);
    become_contained_agent(*plan, status);
    return plan;
  });
}

}  // namespace casemate::guest
