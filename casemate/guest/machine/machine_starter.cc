#include "casemate/guest/machine/machine_starter.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/identity.h"
#include "casemate/guest/machine/machine_agent.h"
#include "casemate/sys/error.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

class MachineStarter final : public Starter {
 public:
  MachineStarter() : self_(sys::open_pid(getpid())) {}

  void get_ready() override {
    if (refused_) throw *refused_;
    if (identity_) return;
    try {
      // Without subordinate ids: an ordinary user's hypervisor stays that user, who may have been
      // given /dev/kvm by name.
      identity_.emplace(std::nullopt);
      if (identity_->is_root_here()) keep_group_of_kvm();
    } catch (const std::system_error& error) {
      refused_ = error;
      throw;
    }
  }

  bool refused() const noexcept override { return refused_.has_value(); }
  std::string description() const override { return identity_->description(); }

  void start(StartPlan plan, KeptSandbox& sandbox) override {
    auto [ours, agents] = sys::socket_pair(sys::SocketType::seqpacket);
    MachineAgentParts parts{
        .request = plan.request,
        .directory = UniqueFd(fcntl(sandbox.directory.get(), F_DUPFD_CLOEXEC, 0)),
        .agent_socket = std::move(plan.agent_socket),
        .lease_socket = std::move(plan.lease_socket),
        .first_lease = std::move(plan.first_lease),
        .status = std::move(agents),
        .keeper = UniqueFd(fcntl(self_.get(), F_DUPFD_CLOEXEC, 0)),
        .image = std::move(plan.image),
        .ids = identity_->pick(),
        .groups = std::move(plan.groups),
    };
    const pid_t pid = sys::clone_process(CLONE_NEWPID);
    if (pid == 0) run_machine_agent(std::move(parts));
    sandbox.pid = pid;
    sandbox.status = std::move(ours);
  }

 private:
  // The hypervisor becomes somebody else, who may then still open the device.
  static void keep_group_of_kvm() {
    struct stat status{};
    if (stat("/dev/kvm", &status) < 0 || status.st_gid == 0) return;
    const gid_t group = status.st_gid;
    if (syscall(SYS_setgroups, 1, &group) < 0) sys::throw_errno("keeping the group of /dev/kvm");
  }

  UniqueFd self_;
  std::optional<KeeperIdentity> identity_;
  // Why the identity could not be had: it is tried once, a half-made user namespace cannot be left.
  std::optional<std::system_error> refused_;
};

}  // namespace

std::unique_ptr<Starter> make_machine_starter() { return std::make_unique<MachineStarter>(); }

}  // namespace casemate::guest
