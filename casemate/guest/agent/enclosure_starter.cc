#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/enclosure.h"
#include "casemate/guest/agent/identity.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/guest/agent/starter.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// A link to the runtime may lie where an enclosure mounts what is its own.
std::vector<std::string> without_links(std::vector<std::string> command) {
  char real[PATH_MAX];
  if (realpath(command.at(0).c_str(), real) != nullptr) command[0] = real;
  return command;
}

class EnclosureStarter final : public Starter {
 public:
  EnclosureStarter(std::vector<std::string> command, std::chrono::seconds patience)
      : command_(without_links(std::move(command))),
        patience_(patience),
        self_(sys::open_pid(getpid())) {}

  void get_ready() override {
    if (refused_) throw *refused_;
    if (template_) return;
    try {
      // The kernel of the enclosure has user ids enough; whom this machine sees is the runtime's
      // to choose, which takes the machine's root.
      identity_.emplace(std::nullopt);
      if (!identity_->is_root_here()) {
        sys::throw_error(EPERM, "starting a runtime with a kernel of its own as an ordinary user");
      }
      template_.emplace(kContainerTemplate);
    } catch (const std::system_error& error) {
      refused_ = error;
      throw;
    }
  }

  bool refused() const noexcept override { return refused_.has_value(); }
  std::string description() const override { return "a kernel of their own"; }

  void start(StartPlan plan, KeptSandbox& sandbox) override {
    auto [ours, enclosures] = sys::socket_pair(sys::SocketType::seqpacket);
    const SandboxIds ids = identity_->pick();
    if (!ids.first_user || !ids.first_group) {
      sys::throw_error(EPERM, "keeping a kernel of its own without a user id that is not used");
    }
    EnclosureParts parts{.start = std::move(plan),
                         .command = command_,
                         .root = &*template_,
                         .user = *ids.first_user,
                         .group = *ids.first_group,
                         .status = std::move(enclosures),
                         .keeper = sys::duplicate(self_.get())};
    const pid_t pid = sys::clone_process(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC);
    if (pid == 0) run_enclosure(std::move(parts));
    sandbox.pid = pid;
    sandbox.start_until = std::chrono::steady_clock::now() + patience_;
    sandbox.status = std::move(ours);
  }

 private:
  const std::vector<std::string> command_;
  const std::chrono::seconds patience_;
  UniqueFd self_;
  std::optional<KeeperIdentity> identity_;
  // As in the clone starter.
  std::optional<std::system_error> refused_;
  std::optional<RootTemplate> template_;
};

}  // namespace

std::unique_ptr<Starter> make_enclosure_starter(std::vector<std::string> command,
                                                std::chrono::seconds patience) {
  return std::make_unique<EnclosureStarter>(std::move(command), patience);
}

}  // namespace casemate::guest
