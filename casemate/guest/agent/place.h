#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace casemate::guest {

// Whether a call has sockets of the host's, for its host tools or its egress.
enum class HostSockets : std::uint8_t { no, yes };

// What differs between the places that the guest program can live in: how a call and an exec get a
// scope of their own, and how a program loses its rights. Everything else of the guest (frames,
// processes, files) is the same everywhere and lies above this.
//
// The process that runs `serve_call` is single-threaded and so is every process cloned from it;
// each method says in which of them it is called. Methods that fail throw `std::system_error`
// unless they say otherwise.
class Place {
 public:
  virtual ~Place() = default;

  // Absolute path of the directory under which calls get theirs ("/workspace").
  virtual const std::string& work_dir() const = 0;

  // -- In the call process -----------------------------------------------------------------------

  // Makes the call's scope around the calling process: `<work_dir>/<id>/work` (empty, writable by
  // the program, the directory above it too), and where the place can a /tmp, /dev/shm and IPC of
  // its own. `id` is 12 hex digits and unused; EEXIST otherwise. Called once, before any clone.
  // With sockets of the host's also a directory, seen by this call alone, in which no program can
  // make or remove anything.
  virtual void open_call_scope(std::string_view id, HostSockets sockets) = 0;

  // After `open_call_scope` with sockets: the directory in which they are to be bound.
  virtual std::string socket_directory(std::string_view id) const = 0;

  // Once the sockets are there: from now on nothing else may be, even where the program's user is
  // the caller's. The default does nothing.
  virtual void seal_sockets();

  // Gives the caller, and so every process of the call, a network of its own: loopback, which also
  // has `addresses` and every IPv4 address that a resolver may give, and ports that anybody may
  // listen at. The default, where none can be had, throws ENOSYS.
  virtual void enter_call_network(const std::vector<std::string>& addresses);

  // Removes what `open_call_scope` made. Called after every process of the call was reaped. Returns
  // whether that is *known* to be complete. Must hold against any tree a program can leave.
  virtual bool close_call_scope(std::string_view id) noexcept = 0;

  // Like fork: 0 in the child, which is to be an exec-init (pid 1 of a pid namespace of its own
  // where the place has such). The child's death must be reported to the caller as SIGCHLD.
  virtual pid_t clone_exec_init() = 0;

  // After an exec-init or a file server was killed and reaped: ends what it may have left behind.
  // With a pid namespace there is nothing to do, the kernel did. Returns whether that is known.
  virtual bool end_leftovers() noexcept = 0;

  // -- In the exec-init --------------------------------------------------------------------------

  // First thing in the child of `clone_exec_init`: its own mounts, a fresh /proc.
  virtual void enter_exec_scope() = 0;

  // Whether a program's process may be there before its program is known: it is counted as one of
  // the programs, which matters where those of all calls are counted together.
  virtual bool may_start_ahead() const noexcept { return true; }

  // A program is about to begin: what was refused before is not its. The default, where the host
  // counts, does nothing.
  virtual void count_refusals() {}

  // Lets the program open by name (/dev/stdout) what it has as a standard stream, given either end
  // of the pipe. Where the program's user is the caller's there is nothing to do, and the default
  // does nothing.
  virtual void give_pipe(int pipe);

  // Sends SIGKILL to every process of the exec but the caller. May have to be repeated while the
  // caller still has children; needs no wait in between.
  virtual void kill_exec_scope() noexcept = 0;

  // What the storage that programs share has no more of, so that "disk" can be named as the limit
  // that bit. Never throws; nothing where it cannot be told.
  enum class DiskFull { no, of_bytes, of_files };
  virtual DiskFull disk_full() const noexcept = 0;

  // Whether the programs' user can have no process more, where nothing but that tells: asked before
  // what a failed program left is killed. Costs at most a part of a second, whatever programs do.
  // The default is false.
  virtual bool processes_ran_out() noexcept;

  // What a counter of the kernel's says was refused since `count_refusals`, to everything that
  // shares the bound: a process that was not made because there were too many, memory so that one
  // was killed. The default, where the host counts, is nothing.
  struct Refused {
    bool forks = false;
    bool memory = false;
  };
  virtual Refused refused() noexcept { return {}; }

  // Where everything lies that programs of this user leave to later calls; absolute, none within
  // another. Empty, the default: no snapshots are taken here.
  virtual std::vector<std::string> kept_directories() const { return {}; }

  // -- In the child that becomes a program or a file server ------------------------------------

  // Moves the calling process, about to become a program, into the accounting groups of its call:
  // open `cgroup.procs` files, or `tasks` of version 1. Only programs belong there, and what works
  // for them alone, so that what bounds them never bounds the process that has to end them.
  // Async-signal-safe. Returns 0 or an errno.
  virtual int join_groups(std::span<const int> groups) noexcept;

  // Becomes the program's user for good: ids, groups, every capability set and the bounding set
  // empty. Async-signal-safe. Returns 0 or an errno.
  virtual int become_user() noexcept = 0;

  // The same of a file server, which serves the host with that user's rights to files. What runs
  // as that user shall not be able to stop it. The default is `become_user`.
  virtual int become_file_worker() noexcept { return become_user(); }

  // In what becomes a program (never in a file server), after `become_user`: resource limits,
  // no_new_privs, the system call filter. What it installs must leave working what is left to do:
  // execve, fchdir, close, what reads and writes, memory of its own and _exit. Async-signal-safe.
  // Returns 0 or an errno.
  virtual int confine_program() noexcept = 0;

  // Of a process of ours that talks to programs, after `become_user` and no_new_privs: the system
  // call filter alone. Returns 0 or an errno. The default has none.
  virtual int filter_calls() noexcept { return 0; }
};

}  // namespace casemate::guest
