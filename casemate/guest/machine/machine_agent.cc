#include "casemate/guest/machine/machine_agent.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/leases.h"
#include "casemate/guest/agent/patient_listener.h"
#include "casemate/guest/machine/machine_messages.h"
#include "casemate/guest/machine/machine_plan.h"
#include "casemate/guest/machine/running_machine.h"
#include "casemate/guest/stream/host_bridge.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// So that who connects again and again keeps nobody else waiting.
constexpr int kTurnedAwayAtOnce = 64;
constexpr std::size_t kMaxPlanBytes = 64 * 1024;

// What an event beside the stream's is about.
enum class Subject : std::uint64_t { agent_socket, leases, console, hypervisor, lateness };
// From the agent's word to the other side's first of the stream; it is there already, most likely.
constexpr timespec kGreetingPatience{.tv_sec = 60, .tv_nsec = 0};

class MachineBridge final : public HostBridge {
 public:
  // `ready` is called once, when connections can be carried: it says so to others.
  MachineBridge(RunningMachine& machine, int agent_socket, Leases& leases,
                std::function<void()> ready)
      : HostBridge(StreamEnd::of(UniqueFd(fcntl(machine.stream(), F_DUPFD_CLOEXEC, 0))), {}),
        machine_(machine),
        agent_socket_(agent_socket),
        leases_(leases),
        ready_(std::move(ready)),
        events_(epoll_create1(EPOLL_CLOEXEC)),
        lateness_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!events_) sys::throw_errno("making an epoll set");
    const itimerspec patience{.it_interval = {}, .it_value = kGreetingPatience};
    if (!lateness_ || timerfd_settime(lateness_.get(), 0, &patience, nullptr) < 0) {
      sys::throw_errno("making a timer");
    }
    await(lateness_.get(), Subject::lateness);
    await(machine.console(), Subject::console);
    await(machine.process(), Subject::hypervisor);
    wake_by(events_.get());
  }

  // Returns when the sandbox shall end.
  void run() {
    while (!over_ && turn()) {
    }
  }

 private:
  void await(int descriptor, Subject subject) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<std::uint64_t>(subject);
    if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) < 0) {
      sys::throw_errno("waiting for a descriptor");
    }
  }

  void ready() override {
    lateness_.reset();
    take_spare();
    ready_();
    listener_.emplace(agent_socket_, events_.get(),
                      static_cast<std::uint64_t>(Subject::agent_socket));
    await(leases_.fd(), Subject::leases);
  }

  // Told again in the next turn for as long as there is something. Not here until there is nothing:
  // a console that is flooded, or a connection that cannot be accepted, would keep the stream
  // waiting.
  void woken() override {
    std::array<epoll_event, 4> ready{};
    const int count = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    for (int i = 0; i < count; ++i) {
      handle_event(static_cast<Subject>(ready[static_cast<std::size_t>(i)].data.u64));
    }
  }

  void accept_connection() {
    UniqueFd connection = listener_->accept(sys::Blocking::yes);
    if (connection) return add_control(std::move(connection));
    if (!listener_->is_paused()) return;
    // Turned away, as one too many is; where not even that can be had they wait.
    spare_.reset();
    for (int i = 0; i < kTurnedAwayAtOnce; ++i) {
      if (!UniqueFd(accept4(agent_socket_, nullptr, nullptr, SOCK_CLOEXEC))) break;
    }
    take_spare();
  }
  void take_spare() { spare_ = UniqueFd(fcntl(events_.get(), F_DUPFD_CLOEXEC, 0)); }

  void handle_event(Subject subject) {
    switch (subject) {
      case Subject::agent_socket:
        accept_connection();
        break;
      case Subject::leases:
        leases_.handle();
        over_ |= leases_.over();
        break;
      case Subject::console:
        // Taken, so that nobody waits for room in the pipe.
        if (!machine_.hear_console()) {
          epoll_ctl(events_.get(), EPOLL_CTL_DEL, machine_.console(), nullptr);
        }
        break;
      case Subject::hypervisor:
        over_ = true;
        break;
      case Subject::lateness:
        sys::throw_error(ETIMEDOUT, "waiting for the guest's end of the stream");
    }
  }

  RunningMachine& machine_;
  int agent_socket_;
  Leases& leases_;
  std::function<void()> ready_;
  UniqueFd events_;
  UniqueFd lateness_;
  std::optional<PatientListener> listener_;
  // For a moment without another descriptor.
  UniqueFd spare_;
  bool over_ = false;
};

MachinePlan read_plan(int directory) {
  try {
    return decode_machine_plan(sys::read_file_at(directory, kMachinePlanName, kMaxPlanBytes));
  } catch (const std::invalid_argument& error) {
    sys::throw_error(EPROTO, error.what());
  }
}

void report(int status, int error, const char* text) {
  AgentReport answer{};
  answer.error = error;
  std::snprintf(answer.text, sizeof answer.text, "%s", text);
  static_cast<void>(sys::try_send_value(status, answer));
}

// Returns those of the hypervisor.
std::vector<UniqueFd> join_groups(MachineAgentParts& parts) {
  std::vector<UniqueFd> hypervisors;
  while (hypervisors.size() < parts.request.bounded_groups && !parts.groups.empty()) {
    hypervisors.push_back(std::move(parts.groups.back()));
    parts.groups.pop_back();
  }
  for (const UniqueFd& group : parts.groups) {
    if (write(group.get(), "0", 1) != 1) sys::throw_errno("joining the agent's control group");
  }
  parts.groups.clear();
  return hypervisors;
}

}  // namespace

void run_machine_agent(MachineAgentParts parts) noexcept {
  const int status = parts.status.get();
  bool ready = false;
  try {
    std::vector<int> kept{0,
                          1,
                          2,
                          status,
                          parts.directory.get(),
                          parts.agent_socket.get(),
                          parts.lease_socket.get(),
                          parts.first_lease.get(),
                          parts.keeper.get()};
    if (parts.image) kept.push_back(parts.image.get());
    for (const UniqueFd& group : parts.groups) kept.push_back(group.get());
    sys::close_all_except(kept);
    sys::die_with_parent(parts.keeper.get());
    prctl(PR_SET_NAME, "casemate-vm");
    signal(SIGPIPE, SIG_IGN);
    umask(0);
    if (unshare(CLONE_NEWNS) < 0) sys::throw_errno("making a mount namespace");
    sys::make_all_slave();
    const MachinePlan plan = read_plan(parts.directory.get());
    Leases leases(std::move(parts.lease_socket), std::move(parts.first_lease),
                  parts.request.keep_idle_ms);
    RunningMachine machine(plan, parts.ids, join_groups(parts));
    machine.get_ready();
    // Not before: a child's id maps are written through /proc, which is root's of who cannot be
    // dumped. No process of the machine can name this one.
    sys::make_undumpable();
    MachineStart start{};
    start.memory_bytes = plan.program_bytes;
    start.cpu_millis = plan.cpu_millis;
    start.sandbox = parts.request;
    // This machine's, of which the guest has none.
    start.sandbox.control_groups = 0;
    start.sandbox.bounded_groups = 0;
    std::memset(start.sandbox.control_group_paths, 0, sizeof start.sandbox.control_group_paths);
    machine.begin(start);
    MachineBridge bridge(machine, parts.agent_socket.get(), leases, [&] {
      leases.start_listening();
      sys::start_listening(parts.agent_socket.get());
      report(status, 0, "");
      parts.status.reset();
      ready = true;
    });
    bridge.run();
    if (!ready) report(status, EPIPE, "the machine ended before its agent could be reached");
    _exit(0);
  } catch (const std::system_error& error) {
    if (!ready) report(status, error.code().value(), error.what());
  } catch (const std::exception& error) {
    if (!ready) report(status, EIO, error.what());
  }
  _exit(1);
}

}  // namespace casemate::guest
