#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/guest/agent/place.h"
#include "casemate/guest/agent/program_group.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The place of the linux backend: namespaces, a quota file system, a system call filter, and
// Landlock as a second wall.
//
// A call has mount and IPC namespaces of its own (the agent cloned it so), an exec its own pid and
// mount namespaces. All of a sandbox's programs have one user id, 1000 inside; what keeps calls
// apart is that they cannot name each other. Where the sandbox's own processes have that id too,
// programs differ by having no capabilities, and a call's directory is kept in its place by a mount
// that every call sees. Loopback, the work directory beside the calls'
// directories and the home directory are shared by the calls of one sandbox.
class LinuxPlace final : public Place {
 public:
  struct Config {
    std::string work_dir;
    // Bounds of the programs (RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_CPU); 0 leaves what is inherited.
    std::uint64_t open_files = 0;
    std::uint64_t processes = 0;
    std::uint64_t cpu_seconds = 0;
    // The sandbox has one id, 1000: this process's and the programs'.
    bool one_id = false;
    // Whether the groups that the application was in can be left.
    bool drops_groups = true;
  };

  // In the call process, cloned with mount and IPC namespaces, user 0 of the sandbox, umask 0.
  // `programs` is theirs all, where nobody outside counts; it outlives this.
  explicit LinuxPlace(Config config, const ProgramGroup* programs = nullptr);

  const std::string& work_dir() const override { return config_.work_dir; }
  std::vector<std::string> kept_directories() const override;
  void open_call_scope(std::string_view id, HostSockets sockets) override;
  std::string socket_directory(std::string_view id) const override;
  void seal_sockets() override;
  void enter_call_network(const std::vector<std::string>& addresses) override;
  bool close_call_scope(std::string_view id) noexcept override;
  pid_t clone_exec_init() override;
  bool end_leftovers() noexcept override;
  void enter_exec_scope() override;
  bool may_start_ahead() const noexcept override {
    return programs_ == nullptr && config_.processes == 0;
  }
  void count_refusals() override;
  void give_pipe(int pipe) override;
  void kill_exec_scope() noexcept override;
  DiskFull disk_full() const noexcept override;
  bool processes_ran_out() noexcept override;
  Refused refused() noexcept override;
  int join_groups(std::span<const int> groups) noexcept override;
  int become_user() noexcept override;
  int confine_program() noexcept override;
  int filter_calls() noexcept override;

 private:
  int limit_processes() const noexcept;
  void fill_call_scope(std::string_view id, HostSockets sockets);
  void cover_mount_point(std::string_view id);
  void clear_mount_point(const std::string& directory) const;

  Config config_;
  const ProgramGroup* programs_;
  // Whether something may be mounted where the call's directory is seen.
  bool is_mounted_ = false;
  // None was cloned yet.
  bool first_exec_ = true;
  // When a program began.
  Refusals before_{};
  // The whole quota file system. Covered in the call's mount namespace; only this reaches it.
  sys::UniqueFd quota_;
  // The call process, for its children to notice its end.
  sys::UniqueFd self_;
  // Of the call: a process of the programs' user beside them.
  bool has_doors_ = false;
  // Of an exec; none where the kernel has no Landlock that serves.
  sys::UniqueFd landlock_;
};

}  // namespace casemate::guest
