#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/declarations.h"
#include "casemate/core/spec.h"
#include "casemate/local/control_groups.h"
#include "casemate/local/image_choice.h"

namespace casemate::local {

// How a backend that makes its sandboxes on this machine differs from the others: what their
// boundary is drawn by. Everything else (state, leases, control groups, images, calls) is the same.
//
// Methods are called from several threads, for different sandboxes at a time.
class Engine {
 public:
  virtual ~Engine() = default;

  // As it is in `declare`. Starts nothing.
  virtual std::string name() const { return declare({}).name; }

  // As the backend declares itself on a machine with that layout of control groups. Cheap; the name
  // never changes.
  virtual BackendDeclarations declare(const ControlGroupLayout& layout) const = 0;

  // What was found here, for a person ("linux 6.1.0").
  virtual std::string text() const = 0;

  // Throws `SandboxUnavailable` where this engine cannot make any sandbox here; before anything
  // else is looked at.
  virtual void check_available() const {}
  // The same within the caller's bounds, where it may take long: throws `SandboxTimeout` and
  // `SandboxCancelled` too. The other methods do not wait after it.
  virtual void get_ready(const CallControl& /*control*/) const { check_available(); }

  // Whether what it makes shares this machine's kernel. Else that bounds a sandbox as a whole only,
  // by its control groups: calls have none, and pid 1 of the sandbox is no process of this machine.
  virtual bool shares_kernel() const { return true; }

  // Of one that does not share it: what control groups of this machine bound a sandbox by as a
  // whole. The default is what its spec gives its programs, and what a kernel takes for itself.
  virtual Resources bounds_as_a_whole(const Resources& resources) const;
  // Whether each limit holds inside, so that control groups of this machine, where they are to be
  // had, only bound the process of this machine that draws the boundary (`first_process`).
  virtual bool holds_limits_inside() const { return false; }

  // Whether its keeper makes several sandboxes at a time, so that one that hangs as it starts holds
  // up no other. Never changes.
  virtual bool starts_side_by_side() const { return true; }

  // For how long its keeper may say nothing to anybody while a sandbox is asked for, before it is
  // taken for broken: longer than a start may take. Never changes.
  virtual std::chrono::seconds keeper_silence() const { return std::chrono::seconds(30); }

  // Beside the spec, what a sandbox is made with; another one replaces an idle sandbox.
  virtual std::string build() const = 0;

  // The role of the guest program that makes sandboxes, and what follows on its command line; see
  // guest/agent/main.cc.
  virtual std::vector<std::string> keeper_arguments() const { return {"keeper"}; }

  // Adds to the directory of a sandbox in the making what its keeper needs (a file that
  // guest/agent/keeper_messages.h names). Throws what `SandboxBackend::acquire` does, and
  // `std::system_error`.
  virtual void prepare(int /*directory*/, const ImageChoice& /*image*/, const SandboxSpec& /*spec*/,
                       const CallControl& /*control*/) {}

  // The process that the host sees the boundary by (`Sandbox::first_process`), by the one that
  // listens in the sandbox's directory. Never throws.
  virtual std::optional<int> first_process(int agent) const noexcept { return agent; }

  // The image of the sandbox by which this engine is tried; empty: the default one. Never throws.
  virtual std::string probe_image() const noexcept { return {}; }

  // Removes what the keeper's end, or a kill, may have left of a sandbox elsewhere than in its
  // directory and its control groups. Its processes have ended. Returns whether nothing is left.
  virtual bool remove_rest(const std::string& /*id*/) noexcept { return true; }
  // Ids of sandboxes of which something is there that `remove_rest` would remove, of live ones too.
  virtual std::vector<std::string> ids_of_rest() const noexcept { return {}; }
};

}  // namespace casemate::local
