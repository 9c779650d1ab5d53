#pragma once

// Where sandboxes are found by every process of this user:
//
//   new/<id>/                 being made; its creator holds a shared lock on locks/new
//   sandboxes/<name>/         live, by `sandbox_name` of key and kind
//   trash/<id>/               being ended
//   snapshots/<id>            what a sandbox kept, for others to begin from (snapshot_store.h)
//   locks/<3 digits>.lock     one creator or disposer at a time, by the first digits of key and
//                             kind; never deleted, because a deleted lock file gives two owners of
//                             two inodes, and so few that they need not be
//
// A sandbox's own directory holds agent.sock and lease.sock (bound by the keeper, listened on by
// the agent, so connecting tells whether it lives), busy.lock and record.json. It moves by rename
// only. Any process may be killed at any instruction; what it leaves is found by the next sweep.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/host_pattern.h"
#include "casemate/core/limits.h"
#include "casemate/core/spec.h"
#include "casemate/local/control_groups.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {

// What is written about a sandbox when it is made.
struct Record {
  std::string id;
  SandboxKey key;
  std::string kind;
  // Empty where this build cannot read all of the record: nothing may be adopted by it then.
  std::string fingerprint;
  std::string image;
  // The image's own variables, for every program.
  std::map<std::string, std::string> environment;
  std::string work_dir;
  // As its maker found it, for those who attach.
  Isolation isolation = Isolation::process;
  // CLOCK_BOOTTIME, in nanoseconds.
  std::uint64_t created = 0;
  std::map<std::string, std::string> labels;
  // What its calls may reach, also for a process that did not make it.
  Egress egress = Egress::closed;
  std::vector<HostPattern> egress_allow;
  std::set<Limit> limits_not_held;
  // Where its control groups are, also for a process that would make its own elsewhere.
  ControlGroupLayout groups;
  // Of the limits not held, those that have no control group.
  std::set<Limit> ungrouped;
  // What one call may have; needed by whoever opens one.
  std::uint64_t pids = 0;
  // Processor seconds, where a control group counts them; 0: no bound.
  std::uint64_t cpu_seconds = 0;
  // The share of processors, in thousandths, where one is held; 0: all there are.
  std::uint64_t cpu_millis = 0;
  // What all its files may take together.
  std::uint64_t disk_bytes = 0;
  std::uint64_t disk_inodes = 0;
  // It has a kernel of its own (`Engine::shares_kernel`).
  bool enclosed = false;
  friend bool operator==(const Record&, const Record&) = default;
};

std::string encode_record(const Record& record);
// A sandbox may outlive the build that made it, and is listed and ended by the next one too: what
// tells whose it is (id, key, kind) is enough for a record. Whatever else is missing, or is not as
// this build writes it, leaves the fingerprint empty. Without the former it gives nothing.
std::optional<Record> decode_record(std::string_view text);

// A lock on a file, of this process and thread alone. Given back before it is closed: a forked
// child of the application would keep it otherwise.
class FileLock {
 public:
  enum class Kind { shared, exclusive };

  // Waits until it is had. Throws `SandboxTimeout` or `SandboxCancelled` by `control`, naming
  // `what`.
  static FileLock wait(int directory, const std::string& name, Kind kind,
                       const CallControl& control, std::string_view what);
  // Absent when somebody else has it.
  static std::optional<FileLock> attempt(int directory, const std::string& name, Kind kind);
  // On a file that was opened for this alone.
  static std::optional<FileLock> attempt(sys::UniqueFd file, Kind kind);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

  // False once its file was removed.
  bool file_is_there() const noexcept;

 private:
  explicit FileLock(sys::UniqueFd file);
  sys::UniqueFd file_;
  int owner_;
};

// Whether a call of that sandbox is in use, or it is replaced or a snapshot of it taken.
bool is_busy(int directory);
// Keeps it from being used. Absent when it is busy, and for longer than it takes to ask that.
// Throws `std::system_error` where it is gone.
std::optional<FileLock> lock_idle(int directory);

// Where the state of that user is when nobody says otherwise. `runtime_dir` is XDG_RUNTIME_DIR,
// null where it is not set.
std::string default_state_directory(uid_t user, const char* runtime_dir);

// A directory of this user's alone, made where it is missing; `shown` is what it is called in the
// `SandboxUnavailable` that is thrown for any other (mode not 0700, a link) and where none can be
// made.
sys::UniqueFd open_private(int parent, const std::string& path, const std::string& shown);

class StateDirectory {
 public:
  // Makes what is missing. Throws `SandboxUnavailable` for a directory that is not this user's
  // alone (mode 0700), a link, or cannot be made.
  explicit StateDirectory(const std::string& path);

  const std::string& path() const { return path_; }
  // False once somebody removed it, or a part of it.
  bool is_there() const noexcept;
  int fresh() const { return new_.get(); }
  int sandboxes() const { return sandboxes_.get(); }
  int trash() const { return trash_.get(); }
  int locks() const { return locks_.get(); }
  const sys::UniqueFd& snapshots() const { return snapshots_; }

 private:
  std::string path_;
  sys::UniqueFd root_;
  sys::UniqueFd new_;
  sys::UniqueFd sandboxes_;
  sys::UniqueFd trash_;
  sys::UniqueFd locks_;
  sys::UniqueFd snapshots_;
};

// What a key's sandbox is called in the state: `identity_digest`, and before it some digits that
// all sandboxes of a conversation have, so that one of a thousand is found without reading as many
// records.
std::string sandbox_name(const SandboxKey& key, std::string_view kind);
// Those digits.
std::string conversation_digits(std::string_view scope, std::string_view thread_id);
// Whether a sandbox of the conversation with these digits may be called so: its record has to be
// asked then. Another build may have given other names.
bool may_be_of(std::string_view conversation, std::string_view name);

// The lock that goes with such a name. Keys that share one wait for each other, a few milliseconds
// and rarely.
inline constexpr std::size_t kLockDigits = 3;
std::string lock_name(std::string_view name);
// The lock that is held, shared, while something is in `new/`.
inline constexpr char kNewLock[] = "new.lock";

// A fresh one, never used before.
std::string new_sandbox_id();

// The directory of that name, to go through; invalid when it is not there.
sys::UniqueFd open_sandbox(int parent, const std::string& name);

// The record of the sandbox in that directory, which is called `name`. Where this build can read
// none: one with the name as its id, and nothing else.
Record read_record(int directory, const std::string& name);
// Writes it, or another in its place: whoever reads meanwhile has the one or the other.
void write_record(int directory, const Record& record);

// Connects to a socket in a sandbox's directory. Absent when nobody listens there.
std::optional<sys::UniqueFd> connect_to(int directory, const char* name);

// Removes a sandbox's directory and what we put in it; `parent` and `name` say where it is.
void remove_sandbox_directory(int parent, const std::string& name) noexcept;

// Says that the sandbox in that directory was in use until now, by a clock that nobody sets. Never
// throws: a listing may then say an older time.
void mark_used(int directory) noexcept;
// How long before `now` (of `boot_time`) that was; 0 where it was never said.
std::chrono::nanoseconds idle_time(int directory, std::uint64_t now);

// Nanoseconds of CLOCK_BOOTTIME.
std::uint64_t boot_time();

}  // namespace casemate::local
