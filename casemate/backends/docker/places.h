#pragma once

// What a host keeps for the sandboxes of a local engine, below its state directory:
//
//   docker/places/<digest>-<place>/   shared with one container, by a bind mount: first.sock (the
//                                     host's until the container has connected), agent.sock and
//                                     lease.sock (the agent's: connecting tells whether it lives),
//                                     busy.lock (held, shared, while a call is open)
//                                     where a stream leads to the container, instead of the
//                                     sockets: engine (`EngineFacts::identity`)
//   docker/home                       16 hex digits, made once: what the containers of this
//                                     directory are known by, also when their place is gone
//   docker/locks/<3 digits>.lock      one creator or disposer at a time, by the digest's first
//                                     digits; never deleted, because a deleted lock file gives two
//                                     owners of two inodes
//
// Any process may be killed at any instruction; what it leaves is found by the next sweep.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::docker {

inline constexpr char kBusyLockName[] = "busy.lock";

// A lock on a file, of this process alone; given back before it is closed, because a forked child
// of the application would keep it otherwise.
class FileLock {
 public:
  enum class Kind { shared, exclusive };

  // Waits until it is had; throws `SandboxTimeout` or `SandboxCancelled` by `control`.
  static FileLock wait(int directory, const std::string& name, Kind kind,
                       const CallControl& control);
  // Absent when somebody else has it. Throws `std::system_error` without the directory.
  static std::optional<FileLock> attempt(int directory, const std::string& name, Kind kind);

  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(sys::UniqueFd file) : file_(std::move(file)) {}
  sys::UniqueFd file_;
  sys::OwnerProcess owner_;
};

class Places {
 public:
  // Makes what is missing. Throws `SandboxUnavailable` for a directory that is not this user's
  // alone.
  explicit Places(const std::string& state_dir);

  // Whose containers are this state directory's; another user of the engine has another.
  const std::string& home() const { return home_; }

  // The lock of everything under that digest of key and kind.
  FileLock lock(std::string_view digest, const CallControl& control) const;
  std::optional<FileLock> try_lock(std::string_view digest) const;

  // Makes the directory of one sandbox. Throws `std::system_error`.
  sys::UniqueFd make(const std::string& name) const;
  // Has it skipped by sweeps of other engines: none of its sockets tells them that it is in use.
  void name_engine(const std::string& name, const std::string& engine) const;
  // Whether that was done for another than `engine`.
  bool is_of_another(const std::string& name, const std::string& engine) const;
  // Empty when it is not there; whatever else stands in the way (no descriptor is left) is a
  // `std::system_error`, because what has no place is ended.
  sys::UniqueFd open(const std::string& name) const;
  // Quiet when it is not there, or cannot be opened.
  void remove(const std::string& name) const noexcept;
  std::vector<std::string> names() const;
  // As an engine is told it; absolute.
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  sys::UniqueFd places_;
  sys::UniqueFd locks_;
  std::string home_;
};

// Where the state of that user is when nobody says otherwise. `runtime_dir` is XDG_RUNTIME_DIR,
// null where it is not set.
std::string default_state_directory(unsigned user, const char* runtime_dir);

// "<digest>-<place>" of the sandbox whose container has that name.
std::string place_directory(std::string_view container_name, std::string_view place);

// A connection to a socket in that directory; empty when nobody listens.
sys::UniqueFd connect_in(int directory, const char* name);

}  // namespace casemate::docker
