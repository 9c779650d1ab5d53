#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/container_config.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/guest/agent/starter.h"
#include "casemate/guest/runtime_rest.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

constexpr char kGroupsDirectory[] = "/sys/fs/cgroup";

// Above all that the runtime is given.
UniqueFd move_up(UniqueFd descriptor) {
  UniqueFd moved(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kContainerProgram + 1));
  if (!moved) sys::throw_errno("duplicating a descriptor");
  return moved;
}

class RuntimeStarter final : public Starter {
 public:
  RuntimeStarter(RuntimePlan plan, const std::optional<SubordinateIds>& subordinate)
      : plan_(std::move(plan)), subordinate_(subordinate), self_(sys::open_pid(getpid())) {
    // Containers become its children when their runtime has ended.
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) sys::throw_errno("becoming a subreaper");
  }

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
    if (!template_) template_.emplace(kContainerTemplate);
  }

  bool refused() const noexcept override { return refused_.has_value(); }
  std::string description() const override { return identity_->description(); }

  void start(StartPlan start, KeptSandbox& sandbox) override {
    const CreateSandbox& request = start.request;
    const SandboxIds ids = identity_->pick();
    // A runtime makes pid 1 user 0 of its container; there has to be another for the programs.
    if (ids.one()) {
      sys::throw_error(EPERM, "finding user ids for a container: " + identity_->description());
    }
    template_->add_work_dir(request.work_dir);
    // Not before there is a sandbox: only then the host has looked whose the directory above is.
    sys::make_directory_at(AT_FDCWD, plan_.state_directory.c_str(), 0700);
    const std::string group =
        plan_.groups == RuntimeGroups::own ? runtime_group(sandbox.id) : std::string();
    sys::write_file_at(sandbox.directory.get(), kContainerConfigName,
                       container_config(ids, group, template_->devices()), 0600);
    UniqueFd program = move_up(sys::open_at(AT_FDCWD, "/proc/self/exe", O_RDONLY));
    sandbox.said = UniqueFd(memfd_create("casemate-runtime", MFD_CLOEXEC));
    if (!sandbox.said) sys::throw_errno("making a memory file");
    auto [ours, agents] = sys::socket_pair(sys::SocketType::seqpacket);
    const int yes = 1;
    if (setsockopt(ours.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) < 0) {
      sys::throw_errno("asking for an agent's number");
    }
    send_plan(ours.get(), start);
    const UniqueFd connection = move_up(std::move(agents));
    const UniqueFd said = move_up(UniqueFd(fcntl(sandbox.said.get(), F_DUPFD_CLOEXEC, 0)));
    const std::optional<std::string> bundle = sys::path_of(sandbox.directory.get());
    if (!bundle) sys::throw_error(ENOENT, "finding the sandbox's directory, which was removed");
    const pid_t pid = fork();
    if (pid < 0) sys::throw_errno("cloning a process");
    if (pid == 0) {
      become_runtime(start, sandbox, *bundle, said.get(), connection.get(), program.get());
    }
    sandbox.runtime_pid = pid;
    sandbox.start_until = std::chrono::steady_clock::now() + plan_.patience;
    sandbox.status = std::move(ours);
  }

  bool remove_rest(const KeptSandbox& sandbox) noexcept override {
    return remove_runtime_rest(plan_.state_directory, sandbox.id);
  }

 private:
  // In the child. It has a mount namespace of its own, so that what is prepared for one container
  // is not seen by another.
  [[noreturn]] void become_runtime(const StartPlan& start, const KeptSandbox& sandbox,
                                   const std::string& bundle, int said, int connection,
                                   int program) {
    try {
      // One that outlived its keeper would go on with records that somebody else removes.
      sys::die_with_parent(self_.get());
      dup2(said, 1);
      dup2(said, 2);
      const UniqueFd null = sys::open_at(AT_FDCWD, "/dev/null", O_RDWR);
      dup2(null.get(), 0);
      std::optional<ImageTemplate> image;
      if (start.image || plan_.groups == RuntimeGroups::hidden) {
        if (unshare(CLONE_NEWNS) < 0) sys::throw_errno("making a mount namespace");
        sys::make_all_slave();
      }
      if (start.image) image.emplace(*template_, start.image.get(), start.request.work_dir);
      if (plan_.groups == RuntimeGroups::hidden) {
        const UniqueFd empty = sys::make_tmpfs({.size = 4096, .inodes = 2, .mode = 0755}, {});
        sys::attach(empty.get(), AT_FDCWD, kGroupsDirectory);
      }
      if (dup2(connection, kContainerKeeper) < 0 || dup2(program, kContainerProgram) < 0) {
        sys::throw_errno("passing descriptors on");
      }
      sys::close_from(kContainerProgram + 1);
      std::vector<std::string> words = plan_.command;
      for (const std::string& word :
           {std::string("--root"), plan_.state_directory, std::string("run"),
            std::string("--detach"), std::string("--no-new-keyring"),
            "--preserve-fds=" + std::to_string(kContainerDescriptors), std::string("--bundle"),
            bundle, sandbox.id}) {
        words.push_back(word);
      }
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      // Programs that it needs are looked for as in a shell of the system's.
      char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
      char* environment[] = {path, nullptr};
      execve(arguments[0], arguments.data(), environment);
      sys::throw_errno("starting " + words[0]);
    } catch (const std::exception& error) {
      dprintf(2, "%s\n", error.what());
    }
    _exit(127);
  }

  const RuntimePlan plan_;
  const std::optional<SubordinateIds> subordinate_;
  UniqueFd self_;
  std::optional<KeeperIdentity> identity_;
  // As in the clone starter.
  std::optional<std::system_error> refused_;
  std::optional<RootTemplate> template_;
};

}  // namespace

std::unique_ptr<Starter> make_runtime_starter(RuntimePlan plan,
                                              const std::optional<SubordinateIds>& subordinate) {
  return std::make_unique<RuntimeStarter>(std::move(plan), subordinate);
}

}  // namespace casemate::guest
