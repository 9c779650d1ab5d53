#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
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

// Waits until an agent that mounts its /proc first has got so far.
bool has_user_namespace(int status) {
  char said = 0;
  ssize_t size = -1;
  do {
    size = recv(status, &said, 1, MSG_PEEK | MSG_TRUNC);
  } while (size < 0 && errno == EINTR);
  return size == 1 && recv(status, &said, 1, 0) == 1;
}

// An agent that is not told yet what sandbox it is. It ends with this, unless it was taken.
class SpareAgent {
 public:
  // Throws `std::system_error`.
  SpareAgent(const KeeperIdentity& identity, int keeper, bool proc_first) {
    const SandboxIds ids = identity.pick();
    auto [ours, agents] = sys::socket_pair(sys::SocketType::seqpacket);
    status_ = std::move(ours);
    SpareParts parts{.status = std::move(agents),
                     .keeper = sys::duplicate(keeper),
                     .proc_first = proc_first,
                     .one_id = ids.one(),
                     .drops_groups = identity.drops_groups()};
    pid_ = sys::clone_process(proc_first ? std::uint64_t{CLONE_NEWPID} : kAllNamespaces);
    if (pid_ == 0) run_agent(std::move(parts));
    try {
      parts.status.reset();
      // Else it has reported why there is none.
      if (!proc_first || has_user_namespace(status_.get())) let_go(ids);
    } catch (...) {
      end();
      throw;
    }
  }
  ~SpareAgent() { end(); }
  SpareAgent(const SpareAgent&) = delete;
  SpareAgent& operator=(const SpareAgent&) = delete;

  int status() const { return status_.get(); }

  // It is the sandbox's from now on.
  void take(KeptSandbox& sandbox) {
    sandbox.pid = std::exchange(pid_, -1);
    sandbox.status = std::move(status_);
  }

 private:
  void let_go(const SandboxIds& ids) const {
    // Its number here may be a stranger's in a /proc that was mounted for another pid namespace.
    const std::optional<pid_t> number = sys::number_in_proc(sys::open_pid(pid_).get());
    if (!number) sys::throw_error(ESRCH, "finding the agent in /proc");
    const std::string folder = "/proc/" + std::to_string(*number) + "/";
    sys::write_control_file_at(AT_FDCWD, (folder + "uid_map").c_str(), ids.user_map());
    sys::write_control_file_at(AT_FDCWD, (folder + "gid_map").c_str(), ids.group_map());
    if (!sys::try_send_value(status_.get(), 'g')) sys::throw_errno("starting an agent");
  }

  // Nobody waits for it otherwise, so the number is its own.
  void end() noexcept {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  pid_t pid_ = -1;
  UniqueFd status_;
};

class CloneStarter final : public Starter {
 public:
  CloneStarter(const std::optional<SubordinateIds>& subordinate, Spares spares)
      : subordinate_(subordinate),
        self_(sys::open_pid(getpid())),
        wants_next_(spares == Spares::ahead) {}

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
      template_.emplace(template_directory());
    }
  }

  bool refused() const noexcept override { return refused_.has_value(); }
  std::string description() const override { return identity_->description(); }

  void start(StartPlan plan, KeptSandbox& sandbox) override {
    template_->add_work_dir(plan.request.work_dir);
    may_make_next_ = !plan.image;
    // What it has of the namespaces and processes that a user may have could be missed.
    if (plan.image) next_.reset();
    // One that waited has the image `host`. It may have been killed since.
    if (next_ && is_told(*next_, plan)) {
      next_->take(sandbox);
    } else {
      // Until the clone has its own copy of the mounts.
      std::optional<ImageTemplate> image;
      if (plan.image) image.emplace(*template_, plan.image.get(), plan.request.work_dir);
      SpareAgent made(*identity_, self_.get(), proc_first_);
      // One that has ended has reported why.
      is_told(made, plan);
      made.take(sandbox);
    }
    next_.reset();
  }

  void prepare_next() override {
    if (next_ || !wants_next_ || !may_make_next_) return;
    get_ready();
    next_.emplace(*identity_, self_.get(), proc_first_);
  }
  void drop_next() noexcept override { next_.reset(); }

 private:
  // False when it has ended.
  static bool is_told(const SpareAgent& agent, const StartPlan& plan) try {
    send_plan(agent.status(), plan);
    return true;
  } catch (const std::system_error& error) {
    if (error.code().value() != EPIPE && error.code().value() != ECONNRESET) throw;
    return false;
  }

  const std::optional<SubordinateIds> subordinate_;
  UniqueFd self_;
  std::optional<KeeperIdentity> identity_;
  // Why the identity could not be had: it is tried once, a half-made user namespace cannot be left.
  std::optional<std::system_error> refused_;
  std::optional<RootTemplate> template_;
  bool proc_first_ = false;
  bool wants_next_ = false;
  // As long as the last sandbox was one that could take it.
  bool may_make_next_ = true;
  std::optional<SpareAgent> next_;
};

}  // namespace

std::unique_ptr<Starter> make_clone_starter(const std::optional<SubordinateIds>& subordinate,
                                            Spares spares) {
  return std::make_unique<CloneStarter>(subordinate, spares);
}

}  // namespace casemate::guest
