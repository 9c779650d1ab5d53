#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "casemate/guest/agent/place.h"
#include "casemate/guest/agent/refusals.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Where a container with a kernel of its own has the hierarchy that counts processes; of version 1,
// as gVisor has it.
inline constexpr char kProcessGroups[] = "/sys/fs/cgroup/pids";

// A place whose boundary somebody else drew: an engine's container with no right but those to
// change and use user ids, in which no namespace can be made (but see `Config::own_kernel`). There
// a user id (and a group id of the same number) of its own is each call's scope: when the call
// ends, every process of that id is killed and was reaped, and its files are gone.
//
// Calls cannot signal, trace or read each other, nor see into each other's directories. They do see
// the names and arguments of each other's processes in /proc, share /tmp, /var/tmp, /dev/shm and
// System V IPC (by their modes; what they made there goes with them), loopback and abstract
// sockets. The rest of the work directory and the home directory belong to a group that all calls
// are in and what is made there is that group's to write; directly in the work directory a call
// removes and renames only what it made itself, because the calls' directories stand there.
//
// An exec's scope is what descends from it. Where a program forks faster than that can be killed,
// all of the call is.
class AccountPlace final : public Place {
 public:
  struct Config {
    std::string work_dir;
    // Bounds of the programs (RLIMIT_NOFILE, RLIMIT_CPU); 0 leaves what is inherited.
    std::uint64_t open_files = 0;
    std::uint64_t cpu_seconds = 0;
    // The container has a kernel of its own that lets its root make namespaces (gVisor's): a call
    // has its own /tmp, /dev/shm and System V IPC, and an exec a pid namespace, which is then its
    // scope. Such a kernel shows each process to all others, whoever they are.
    bool own_kernel = false;
    // There, most processes and threads of a call, by a control group of its own, for which the
    // container has the hierarchy of that controller. Processes that have ended are not counted.
    std::uint64_t processes = 0;
    // There, bytes of each directory of a call.
    std::uint64_t directory_bytes = 0;
    // Of the sandbox: what all its calls may write is this group's. As a user id it is the real one
    // of what serves their files, and no program's.
    unsigned shared_id = 0;
  };

  // Like fork, for what becomes a call process. Throws `std::system_error`.
  static pid_t clone_call(const Config& config);

  // In the call process, user 0 with the capabilities CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and
  // SETUID, umask 0. `id` is a user and group id that no other call has; the user id after it is
  // the call's too.
  AccountPlace(Config config, unsigned id);

  // Once a sandbox, in its agent: gives what calls share its owner and modes. Throws
  // `std::system_error`.
  static void prepare_sandbox(const Config& config);

  const std::string& work_dir() const override { return config_.work_dir; }
  void open_call_scope(std::string_view id, HostSockets sockets) override;
  std::string socket_directory(std::string_view id) const override;
  bool close_call_scope(std::string_view id) noexcept override;
  pid_t clone_exec_init() override;
  bool end_leftovers() noexcept override;
  void enter_exec_scope() override;
  void count_refusals() override { before_ = read_refusals(); }
  void give_pipe(int pipe) override;
  void kill_exec_scope() noexcept override;
  DiskFull disk_full() const noexcept override;
  Refused refused() noexcept override;
  int join_groups(std::span<const int> groups) noexcept override;
  int become_user() noexcept override;
  int become_file_worker() noexcept override;
  int confine_program() noexcept override;

 private:
  void fill_call_scope(const std::string& directory, std::string_view id, HostSockets sockets);
  // With that user's rights; signals are allowed to who is `signalled_by`.
  int take_ids(unsigned signalled_by) const noexcept;

  Config config_;
  unsigned id_;
  // By which programs join the call's group.
  sys::UniqueFd group_;
  bool first_exec_ = true;
  // When the program began.
  Refusals before_;
  // How often the exec's processes were to be killed.
  int kills_ = 0;
};

// What an agent does about a call whose process did not come to its end. First, by itself and
// without asking for anything: kills every process of the id, of which none can be made meanwhile.
void kill_account(unsigned id) noexcept;
// Then, in a process of its own, as `AccountPlace` is: the same, waits for them and removes what
// the id made. Returns whether nothing is left.
bool clear_account(const AccountPlace::Config& config, unsigned id) noexcept;

}  // namespace casemate::guest
