#include <fcntl.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/guest/agent/starter.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

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

class CloneStarter final : public Starter {
 public:
  explicit CloneStarter(const std::optional<SubordinateIds>& subordinate)
      : subordinate_(subordinate), self_(sys::open_pid(getpid())) {}

  void get_ready() override {
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

  bool refused() const noexcept override { return refused_.has_value(); }
  std::string description() const override { return identity_->description(); }

  void start(StartPlan start, KeptSandbox& sandbox) override {
    const CreateSandbox& request = start.request;
    template_->add_work_dir(request.work_dir);
    auto [ours, agents] = sys::socket_pair(sys::SocketType::seqpacket);
    ids_ = identity_->pick();
    AgentPlan plan;
    plan.root = {.work_dir = request.work_dir,
                 .disk_bytes = request.disk_bytes,
                 .disk_inodes = request.disk_inodes,
                 .one_id = ids_.one()};
    plan.place = {.work_dir = request.work_dir,
                  .open_files = request.open_files,
                  .processes = request.processes,
                  .cpu_seconds = request.cpu_seconds,
                  .one_id = ids_.one(),
                  .drops_groups = identity_->drops_groups()};
    plan.agent_socket = std::move(start.agent_socket);
    plan.lease_socket = std::move(start.lease_socket);
    plan.status = std::move(agents);
    plan.first_lease = std::move(start.first_lease);
    plan.keep_idle_ms = request.keep_idle_ms;
    // Until the clone has its own copy of the mounts.
    std::optional<ImageTemplate> image;
    if (request.has_image != 0) {
      plan.image = std::move(start.image);
      image.emplace(*template_, plan.image.get(), request.work_dir);
    }
    plan.groups = std::move(start.groups);
    plan.programs = std::move(start.programs);
    plan.keeper = sys::duplicate(self_.get());
    plan.proc_first = proc_first_;
    const pid_t pid =
        sys::clone_process(proc_first_ ? std::uint64_t{CLONE_NEWPID} : kAllNamespaces);
    if (pid == 0) run_agent(std::move(plan));
    sandbox.pid = pid;
    sandbox.status = std::move(ours);
  }

  void let_go(KeptSandbox& sandbox) override {
    // Else it has reported why there is none.
    if (proc_first_ && !has_user_namespace(sandbox.status.get())) return;
    write_id_maps(sandbox.process.get(), ids_);
    if (!sys::try_send_value(sandbox.status.get(), 'g')) {
      sys::throw_errno("starting an agent");
    }
  }

 private:
  const std::optional<SubordinateIds> subordinate_;
  UniqueFd self_;
  std::optional<KeeperIdentity> identity_;
  // Why the identity could not be had: it is tried once, a half-made user namespace cannot be left.
  std::optional<std::system_error> refused_;
  std::optional<RootTemplate> template_;
  bool proc_first_ = false;
  // Of the one that was started last.
  SandboxIds ids_;
};

}  // namespace

std::unique_ptr<Starter> make_clone_starter(const std::optional<SubordinateIds>& subordinate) {
  return std::make_unique<CloneStarter>(subordinate);
}

}  // namespace casemate::guest
