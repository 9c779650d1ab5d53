#include "casemate/guest/agent/container_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/account_calls.h"
#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/enclosed_agent.h"
#include "casemate/guest/agent/enclosed_mounts.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/leases.h"
#include "casemate/guest/agent/patient_listener.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

std::string shared_path(const char* name) { return std::string(kSharedDirectory) + "/" + name; }

UniqueFd bind_in_shared(const char* name) {
  UniqueFd socket = sys::make_stream_socket();
  sys::bind_to_path(socket.get(), shared_path(name));
  return socket;
}

// By who a process is counted there may be no hierarchy that this root may write to: a kernel in a
// virtual machine bounds all of the container.
bool counts_processes() noexcept {
  return access((std::string(kProcessGroups) + "/cgroup.procs").c_str(), W_OK) == 0;
}

AccountPlace::Config place_of(const ContainerPlan& plan) {
  AccountPlace::Config config{
      .work_dir = plan.work_dir, .open_files = plan.open_files, .cpu_seconds = plan.cpu_seconds};
  if (plan.host_kernel.empty()) return config;
  config.own_kernel = true;
  if (counts_processes()) config.processes = plan.processes;
  config.directory_bytes = plan.directory_bytes;
  return config;
}

class ContainerAgent {
 public:
  ContainerAgent(const ContainerPlan& plan, UniqueFd first_lease)
      : socket_(bind_in_shared(kAgentSocketName)),
        listener_(socket_.get()),
        leases_(bind_in_shared(kLeaseSocketName), std::move(first_lease), plan.keep_idle_ms),
        calls_(place_of(plan)) {
    sys::start_listening(socket_.get());
    leases_.start_listening();
  }

  // Until somebody has a lease, or that time is over, `first` keeps the sandbox.
  void wait_for_lease(UniqueFd first, std::chrono::milliseconds most) {
    first_ = std::move(first);
    first_until_ = std::chrono::steady_clock::now() + most;
  }

  // Returns when the sandbox shall end.
  void run() {
    while (!leases_.over()) {
      std::array<pollfd, 3> entries{{
          {.fd = calls_.fd(), .events = POLLIN, .revents = 0},
          {.fd = listener_.fd(), .events = POLLIN, .revents = 0},
          {.fd = leases_.fd(), .events = POLLIN, .revents = 0},
      }};
      const int ready = sys::poll_until(entries, first_ ? first_until_ : std::nullopt);
      if (entries[0].revents != 0) calls_.reap();
      if (entries[1].revents != 0) accept_call();
      if (entries[2].revents != 0) leases_.handle();
      // With its own.
      if (first_ && (ready == 0 || leases_.granted() > 1)) first_.reset();
    }
  }

 private:
  void accept_call() {
    UniqueFd connection = listener_.accept(sys::Blocking::yes);
    if (connection) calls_.start(std::move(connection));
  }

  UniqueFd socket_;
  PatientListener listener_;
  Leases leases_;
  // The other end of the lease that is there for want of a host's.
  UniqueFd first_;
  std::optional<sys::SteadyTime> first_until_;
  AccountCalls calls_;
};

void report(int host, int error, const char* text) noexcept {
  AgentReport answer{};
  answer.error = error;
  std::snprintf(answer.text, sizeof answer.text, "%s", text);
  static_cast<void>(sys::try_send_value(host, answer));
}

// Of a container that shares nothing with its host.
int serve_alone(ContainerPlan plan) {
  empty_bounding_set();
  // Those who come say themselves what they wish.
  plan.keep_idle_ms = kNoWish;
  auto [lease, own] = sys::socket_pair(sys::SocketType::stream);
  ContainerAgent agent(plan, std::move(lease));
  agent.wait_for_lease(std::move(own), std::chrono::milliseconds(plan.first_lease_ms));
  const std::string ready = shared_path(kReadyName);
  if (mkfifo(ready.c_str(), 0600) < 0 && errno != EEXIST) sys::throw_errno("making " + ready);
  const UniqueFd told = sys::open_at(AT_FDCWD, ready.c_str(), O_RDWR);
  agent.run();
  return 0;
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
    if (!plan.host_kernel.empty()) {
      // The rights that go with it are none that a container of this kernel's may have.
      if (kernel_of_this_process() == plan.host_kernel) {
        sys::throw_error(EPERM, "beginning on the host's kernel");
      }
      remove_devices();
    }
    if (plan.first_lease_ms > 0) return serve_alone(plan);
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
