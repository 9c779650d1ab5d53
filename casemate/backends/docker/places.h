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

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/state_directory.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::docker {

using guest::kBusyLockName;

class Places {
 public:
  // Makes what is missing. Throws `SandboxUnavailable` for a directory that is not this user's
  // alone.
  explicit Places(const std::string& state_dir);

  // Whose containers are this state directory's; another user of the engine has another.
  const std::string& home() const { return home_; }

  // The lock of everything under that digest of key and kind.
  local::FileLock lock(std::string_view digest, const CallControl& control) const;
  std::optional<local::FileLock> try_lock(std::string_view digest) const;

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

// "<digest>-<place>" of the sandbox whose container has that name.
std::string place_directory(std::string_view container_name, std::string_view place);

}  // namespace casemate::docker
