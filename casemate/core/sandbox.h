#pragma once

// The seam: what a place that can run guest code looks like to everything above it.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/egress.h"
#include "casemate/core/exec.h"
#include "casemate/core/sandbox_entry.h"
#include "casemate/core/vocabulary.h"

namespace casemate {

enum class Recursive : std::uint8_t { no, yes };

// File operations on a guest, each confined to `working_directory` (an absolute guest path).
//
// `path` is relative to it, or absolute inside it. Every method:
//  - throws `SandboxPathRefused` for a path outside, through a link, or with a backslash;
//  - throws `SandboxFileError` with ENOTDIR when a parent is no directory and no link, and with
//    the guest's errno when the operation failed;
//  - throws `SandboxTimeout`, `SandboxCancelled` by `control`, `SandboxUnavailable` when the
//    provider failed, `SandboxCapabilityNotSupported` when the backend does not declare it.
// May be called from several threads. Check and use are one act inside the guest: a guest program
// that swaps entries gets a refusal or its own file, never the host's. Nothing here is atomic with
// respect to a running guest program.
class GuestFiles {
 public:
  virtual ~GuestFiles() = default;

  // Writes a regular file (0644) with exactly `content`, replacing one that is there; parents are
  // created. Throws `SandboxPathRefused` also when the path is the working directory itself or its
  // last component is a link.
  virtual void write_file(std::string_view path, std::span<const char> content,
                          std::string_view working_directory, const CallControl& control) = 0;

  // The entry, its last component not followed; absent when missing. Parents are still walked.
  virtual std::optional<SandboxEntry> stat_file(std::string_view path,
                                                std::string_view working_directory,
                                                const CallControl& control) = 0;

  // The bytes of a regular file of at most `max_bytes`. A larger one (also one that grows while it
  // is read) is `SandboxTransferCapExceeded`, never a part of it; a link is `SandboxFileError`
  // with ELOOP, a missing file ENOENT, a directory EISDIR, anything else EINVAL.
  virtual std::string read_file(std::string_view path, std::string_view working_directory,
                                std::uint64_t max_bytes, const CallControl& control) = 0;

  // Removes a file, a link (itself, never what it points to) or, with `recursive`, a tree. A
  // missing path is success. A directory without `recursive`, even an empty one, is
  // `SandboxFileError` with EISDIR; the working directory itself is `SandboxPathRefused`.
  virtual void remove(std::string_view path, std::string_view working_directory,
                      Recursive recursive, const CallControl& control) = 0;

  // The entries of one directory, sorted by name, links named as links; the directory itself may
  // not be a link. At most 100,000 entries; more is `SandboxTransferCapExceeded`.
  virtual std::vector<SandboxEntry> list_dir(std::string_view path,
                                             std::string_view working_directory,
                                             const CallControl& control) = 0;
};

// A program that was started in a call.
//
// Destroying a running process ends it and everything it started, unless its lifetime is the
// sandbox's; the destructor does not throw and waits a bounded time. Output is pumped inside `wait`
// and `write_stdin`, on the calling thread: a program that prints while nobody is in either blocks
// on its pipe. One thread at a time may be in `wait` or `write_stdin`; `signal` may be called from
// any.
class Process {
 public:
  virtual ~Process() = default;

  // Pumps output until the program and all it started have ended, and returns the result; a second
  // call returns the same value. `control.stop` gives outcome `cancelled`; past `control.deadline`
  // the provider counts as silent: `SandboxTimeout`, and the process is ended. Throws
  // `SandboxUnavailable` when the provider's stream ended without an exit status. Both carry
  // the `ReceivedOutput` (core/exec.h) of a program that had started. An exception from `on_output`
  // ends the process and is rethrown. A program with the sandbox's lifetime lives on past the
  // deadline; `control.stop` ends it too.
  virtual ExecResult wait(const CallControl& control) = 0;

  // Writes all of `bytes` to standard input (`StdinMode::piped`), pumping output meanwhile.
  // Returns quietly when the program closed its input. Throws like `wait`.
  virtual void write_stdin(std::span<const char> bytes, const CallControl& control) = 0;
  // End of input. Idempotent.
  virtual void close_stdin() = 0;

  // Sends a signal (1..64) to the program itself. Quiet when it has ended.
  virtual void signal(int number) = 0;
};

// A program that a call is opened for: `<interpreter> <call directory>/<path>`, in `work/`, with an
// empty standard input. The file is written with `Call::write_file(path, ..., directory())` before
// `Call::start` asks for exactly this. For providers that have such a program started ahead, up to
// where it reads its file; the others take no notice.
struct ExpectedProgram {
  std::string interpreter{};
  // Relative to the call's directory, in a directory of its own.
  std::string path{};
  // As in `ExecRequest`.
  std::map<std::string, std::string> environment{};
  friend bool operator==(const ExpectedProgram&, const ExpectedProgram&) = default;
};

// What a call is opened with.
struct CallProfile {
  // 12 lower-case hex digits that name the call's directory; empty means fresh random ones.
  std::string id{};
  // A Unix stream socket of the host's without an address, or -1. The provider gives it one that
  // only this call's programs can reach, any of them; who listens on it and answers is the host's
  // business (host_tools/channel.h). Borrowed until the call is open. For a backend whose
  // `host_tool_transport` is `channel`; `SandboxCapabilityNotSupported` elsewhere.
  int host_tool_socket = -1;
  // What will be started in it first, if it is known. Calls with an id of their own or with a host
  // tool socket begin from nothing all the same.
  std::optional<ExpectedProgram> expects{};
  // A program will be started in it, so that a provider may get ready for one while files are
  // written. `start` does the same whatever this says.
  bool starts_program = false;
  // Nothing else is asked of it: a provider may begin to close it when that program has ended.
  // `close` says as ever whether it is.
  bool ends_with_program = false;
};

// A scope of its own: one directory, its files, its processes. Nothing of it is seen by another
// call of the same sandbox, and nothing of it exists once `close` said so.
class Call : public GuestFiles {
 public:
  // Closes without a report. Never throws.
  ~Call() override = default;

  virtual const std::string& id() const = 0;
  // `<work_dir>/<id>`: the call's own directory, absolute. `<directory>/work` exists, is empty at
  // first, writable by the program, and its programs' current directory.
  virtual const std::string& directory() const = 0;
  // Where programs of the call find the profile's `host_tool_socket`, as a guest path; empty
  // without one.
  virtual std::string host_tool_address() const { return {}; }

  // In a sandbox whose egress is `allowlist`: cuts off what programs of the call reach outside, and
  // returns what they asked for and what came of it. Idempotent. Nothing elsewhere.
  virtual std::vector<EgressRecord> end_egress() noexcept { return {}; }

  // Starts a program. Returns once the guest said that it begins; before that an end may be
  // retried, after it never is. A program that cannot be executed is `SandboxFileError` with the
  // guest's errno (ENOENT: not found, EACCES: not executable); a bad directory is
  // `SandboxPathRefused` or `SandboxFileError`; a malformed request (no word in argv, a NUL in a
  // string, no descriptor to forward, `Lifetime::sandbox` in a call with host tools or egress or
  // against `check_lifetime`) is `InvalidArgument`. Several may run at once.
  virtual std::unique_ptr<Process> start(const ExecRequest& request,
                                         const CallControl& control) = 0;

  // Ends every process of the call, removes its directory and says whether that is *known*. False
  // means the sandbox must be disposed. Idempotent; never throws. Processes that stay
  // (`Lifetime::sandbox`) are left, and the directory with them until the last of them has ended.
  virtual bool close() noexcept = 0;

  // The host has ended the sandbox, and with it everything of the call in it: whatever is left is
  // the host's own, and `close` says no more about the guest. Never throws.
  virtual void end_with_sandbox() noexcept {}

  // `start` and `wait`.
  ExecResult exec(const ExecRequest& request, const CallControl& control);
};

// What a sandbox is, for results and listings.
struct SandboxInfo {
  std::string id{};
  std::string backend{};
  Isolation isolation = Isolation::process;
  // It was already there, made by an earlier acquire.
  bool reused = false;
  std::string image{};
  Egress egress = Egress::closed;
  std::string work_dir{};
  // Default bounds that this backend cannot hold here.
  std::set<Limit> limits_not_held{};
};

// A live sandbox. May be used from several threads; calls run concurrently, each in its own scope.
// Destroying a handle ends nothing: the lease on the sandbox is the process's (see backend.h), and
// the next acquire finds it as it was left. A handle whose sandbox died or was disposed throws
// `SandboxUnavailable`; acquire again to get a fresh one.
class Sandbox : public GuestFiles {
 public:
  ~Sandbox() override = default;

  virtual SandboxInfo info() const = 0;

  // The process that the place begins with (its process 1, the monitor of a machine), by its number
  // on this host, for who wants to look at it in /proc. Absent where the place is not on this host
  // or its process cannot be told; default: absent. The number may be another's once the sandbox
  // has ended.
  virtual std::optional<int> first_process() const { return std::nullopt; }

  // Opens a scope. Throws `SandboxUnavailable`, `SandboxTimeout`, `SandboxCancelled`,
  // `InvalidArgument` for an id that is not 12 lower-case hex digits or that an open call has.
  virtual std::unique_ptr<Call> open_call(const CallProfile& profile,
                                          const CallControl& control) = 0;

  // Runs code in a runtime without processes. `timeout` counts from the call, queueing included.
  // Default: `SandboxCapabilityNotSupported`.
  virtual ExecResult run_code(std::string_view code,
                              std::optional<std::chrono::nanoseconds> timeout,
                              const CallControl& control);

  // The methods of a call that lasts one request: opened, used, closed. File operations see what
  // the sandbox keeps (`work_dir` and the home directory), never another call's directory. Where
  // the end of such a call cannot be shown, `exec` leaves `stopped_known` false, and a file
  // operation that was done throws `SandboxUnavailable`: dispose the sandbox. What an operation
  // itself threw is thrown instead.
  ExecResult exec(const ExecRequest& request, const CallControl& control);
  void write_file(std::string_view path, std::span<const char> content,
                  std::string_view working_directory, const CallControl& control) override;
  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view working_directory,
                                        const CallControl& control) override;
  std::string read_file(std::string_view path, std::string_view working_directory,
                        std::uint64_t max_bytes, const CallControl& control) override;
  void remove(std::string_view path, std::string_view working_directory, Recursive recursive,
              const CallControl& control) override;
  std::vector<SandboxEntry> list_dir(std::string_view path, std::string_view working_directory,
                                     const CallControl& control) override;
};

}  // namespace casemate
