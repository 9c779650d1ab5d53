#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/backend.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"
#include "casemate/egress/gateway.h"
#include "casemate/images/store.h"

namespace casemate {

// As it declares itself, and as a router and `casemate.toml` select it.
inline constexpr std::string_view kLinuxBackendName = "linux";

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
  // README.md beside this header says in what. One that cannot be imported is passed over.
  std::vector<std::string> imports{};
};

// Every field has an initialiser, so that a host that names only some is not warned of the rest.
struct LinuxBackendOptions {
  // Where sandboxes are found by every process of this user; made with mode 700. Empty:
  // /run/casemate for root, else casemate in $XDG_RUNTIME_DIR or /run/user/UID, where one of them
  // is the user's and private, else /tmp/casemate-UID.
  std::string state_dir{};
  Log log{};
  ControlGroups control_groups = ControlGroups::where_possible;
  // Where images other than `host` and `dir:` are kept, and how they are brought there.
  images::ImageStoreOptions images{};
  std::optional<WarmPool> warm_pool{};
  // How calls of sandboxes in `allowlist` are served by this process; the list, the log and the
  // call's name are filled in. Nothing of it counts for the sandbox itself.
  EgressOptions egress{};
};

// Sandboxes out of the kernel's own parts, without a daemon or a setuid helper: namespaces, a root
// of read-only views of this machine's /usr or of an image, a quota file system, control groups, a
// user without capabilities, a system call filter. Rung `container`: the kernel is shared with the
// host.
//
// Needs Linux 5.12, and root or user namespaces for everybody. What it declares, how each limit is
// held and what it does not protect is written in README.md beside this header.
//
// Sandboxes are kept by a process of its own (the keeper), started at the first acquire; this
// process is never their parent, gets no signals of theirs and has no thread for them; only the
// start of the keeper is, for an instant, a child that ends at once and is waited for.
//
// A sandbox belongs to the processes that acquired it, not to their handles: this object keeps one
// lease (two descriptors) on each until it is disposed, here or elsewhere, or this object goes, or
// the process ends, however. So an acquire of what is held already costs next to nothing, and a
// host that never disposes keeps a sandbox for every key it ever used. A handle that outlives this
// object keeps its own sandbox. A fork of this process without exec holds them too, until it ends.
class LinuxBackend final : public SandboxBackend {
 public:
  explicit LinuxBackend(LinuxBackendOptions options = {});
  ~LinuxBackend() override;

  BackendDeclarations declarations() const override;
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override;
  int dispose(const SandboxKey& key) noexcept override;
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override;

  // Makes a sandbox and ends it.
  BackendProbe probe() override;
  std::vector<SandboxRecord> list() override;
  std::shared_ptr<Sandbox> attach(const SandboxKey& key, std::string_view kind,
                                  const CallControl& control) override;
  bool dispose_id(std::string_view id) noexcept override;

  // Waits until the warm pool holds all that it shall, at most until the deadline. False when that
  // did not come about (the log says why), and without a pool.
  bool wait_until_warm(const CallControl& control);

 private:
  class Impl;
  // Shared with the sandboxes, which may outlive the backend.
  std::shared_ptr<Impl> impl_;
};

}  // namespace casemate
