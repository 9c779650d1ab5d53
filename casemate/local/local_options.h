#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"
#include "casemate/egress/gateway.h"
#include "casemate/images/store.h"

namespace casemate {

// Whether control groups bound sandboxes, where this user may make them. Without any, memory, the
// share of processors and processor seconds are not held, processes are counted by user.
enum class ControlGroups { where_possible, none };

// What is kept ready, so that nobody has to wait for it. Made and made up for by a thread of the
// backend's own, which begins with the first acquire.
struct WarmPool {
  // Serves the acquires of specs that differ in labels and `keep_idle` only, whatever their key.
  SandboxSpec spec{};
  // Ready sandboxes, of no key yet. Each has its memory (half a MiB) and shows in `list` under a
  // key of the scope "casemate pool".
  std::size_t sandboxes = 1;
  // Started ahead, up to where it reads its file, in every one of these and in every sandbox that
  // this object acquired with such a spec: see `CallProfile::expects`. To the program it is as if
  // it had been started when its file was there, but for what nobody can hide: the time at which
  // its process began, and that it was at work before (its processor time is counted from when it
  // is let go on). Each has its memory (an interpreter: 3.3 MB). Where the interpreter's file on
  // this machine changes, those that run the old one are ended.
  std::optional<ExpectedProgram> program{};
  std::size_t programs = 1;
  // Modules that each of them, where it is CPython 3.10 or newer that was started as CodeAct does,
  // imports before it waits; at most 64. Then a program is *not* as it would be otherwise:
  // casemate/backends/linux/README.md says in what. One that cannot be imported is passed over.
  std::vector<std::string> imports{};
};

// What a state directory holds of snapshots where nobody says.
inline constexpr std::size_t kMaxSnapshots = 64;

namespace local {

// What every backend that makes its sandboxes on this machine is given.
struct LocalOptions {
  // Where sandboxes are found by every process of this user; made with mode 700. Absolute.
  std::string state_dir{};
  Log log{};
  ControlGroups control_groups = ControlGroups::where_possible;
  // Where images other than `host` and `dir:` are kept, and how they are brought there.
  images::ImageStoreOptions images{};
  std::optional<WarmPool> warm_pool{};
  // How calls of sandboxes in `allowlist` are served by this process; the list, the log and the
  // call's name are filled in. Nothing of it counts for the sandbox itself.
  EgressOptions egress{};
  // Snapshots that the state directory holds at a time, of all processes together. One more is
  // refused (`SandboxUnavailable`).
  std::size_t max_snapshots = kMaxSnapshots;
};

}  // namespace local
}  // namespace casemate
