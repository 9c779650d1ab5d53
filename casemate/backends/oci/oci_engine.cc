#include "casemate/backends/oci/oci_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "casemate/backends/oci/oci_backend.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/guest/runtime_rest.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/group_detection.h"
#include "casemate/local/spec_check.h"
#include "casemate/sys/file.h"

namespace casemate::oci {
namespace {

// Tells one file behind the runtime's path from another.
std::string mark_of(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) < 0) return "";
  return fmt::format("{}:{}:{}:{}:{}", status.st_dev, status.st_ino, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

// Version 1 with version 2 beside it, as crun refuses it.
bool is_mixed() {
  struct statfs status{};
  return statfs("/sys/fs/cgroup/unified", &status) == 0 && status.f_type == CGROUP2_SUPER_MAGIC;
}

// Whether this user may make groups everywhere, which runc then wants to.
bool may_make_groups() { return geteuid() == 0 && local::detect_groups().layout.pids.has_value(); }

}  // namespace

OciEngine::OciEngine(std::string setting, std::string search, std::string state_dir,
                     std::chrono::seconds start_patience)
    : setting_(std::move(setting)),
      search_(std::move(search)),
      state_dir_(std::move(state_dir)),
      start_patience_(start_patience) {}

std::string OciEngine::name() const { return std::string(kOciBackendName); }

// A rung that its name alone would give is none: what calls itself runsc is asked, and the kernel
// of each sandbox is looked at when it is made (guest/agent/enclosure.h).
bool OciEngine::encloses() const noexcept try {
  return runtime().family == RuntimeFamily::runsc;
} catch (const std::exception&) {
  return false;
}

bool OciEngine::shares_kernel() const { return !encloses(); }

// One that is called crun or runc promises the lower rung only, and is not started to hear it.
bool OciEngine::is_worth_asking() const {
  const std::string path = find_program(setting_, search_).value_or("");
  if (!path.ends_with("/crun") && !path.ends_with("/runc")) return true;
  const std::lock_guard lock(mutex_);
  return asked_ && asked_->path == path;
}

BackendDeclarations OciEngine::declare(const local::ControlGroupLayout& layout) const {
  if (!is_worth_asking() || !encloses()) {
    return local::declare(kOciBackendName, Isolation::container, layout);
  }
  BackendDeclarations declared =
      local::declare(kOciBackendName, Isolation::hardened_container, layout);
  // Calls have no network of their own there.
  declared.egress_modes = {Egress::closed};
  declared.capabilities.erase(Capability::snapshot);
  // The machine bounds the memory of the whole sandbox, whose kernel ends with it when that is
  // spent. Of processes that kernel does not count those that nobody waits for, of files none.
  for (const Limit limit : {Limit::memory, Limit::pids, Limit::disk}) {
    declared.enforceable_limits.erase(limit);
  }
  declared.cpu_seconds_enforceable = false;
  return declared;
}

Runtime OciEngine::runtime(const CallControl& control) const {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!control.deadline) {
    lock.lock();
  } else if (!lock.try_lock_until(*control.deadline)) {
    throw SandboxTimeout("the deadline came while the OCI runtime was asked for its version");
  }
  const std::optional<std::string> path = find_program(setting_, search_);
  if (!path) {
    if (!setting_.empty()) {
      throw SandboxUnavailable(
          fmt::format("there is no OCI runtime '{}' here", escape_for_display(setting_)),
          "set the backend's runtime to one that is installed");
    }
    const local::Remedy remedy = local::install_package("crun");
    throw Carrying<SandboxUnavailable, local::Remedy>(
        SandboxUnavailable("there is no OCI runtime here, neither crun, runc nor runsc",
                           remedy.hint),
        remedy);
  }
  std::string mark = mark_of(*path);
  if (!asked_ || asked_->path != *path || mark != mark_) {
    asked_ = ask_runtime(*path, control);
    mark_ = std::move(mark);
  }
  return *asked_;
}

std::string OciEngine::text() const {
  try {
    const Runtime found = runtime();
    std::string text =
        fmt::format("{} {} ({})", to_string(found.family), found.version, found.path);
    const auto faults = known_faults(found);
    if (!faults.empty()) {
      text += fmt::format(", by its version without the fixes of {}", fmt::join(faults, ", "));
    }
    return text;
  } catch (const SandboxError&) {
    // Of one that somebody asked for, and that is there and does not work, the path.
    return setting_.empty() ? "" : find_program(setting_, search_).value_or("");
  }
}

void OciEngine::check_available() const { runtime(); }

void OciEngine::get_ready(const CallControl& control) const { runtime(control); }

// The keeper ends a start that takes too long, and says so.
std::chrono::seconds OciEngine::keeper_silence() const {
  return start_patience_ + Engine::keeper_silence();
}

std::string OciEngine::build() const {
  const Runtime found = runtime();
  return fmt::format("{} {} {}", guest::guest_build_id(), to_string(found.family), found.version);
}

std::vector<std::string> OciEngine::keeper_arguments() const {
  const Runtime found = runtime();
  const std::string seconds = std::to_string(start_patience_.count());
  if (found.family == RuntimeFamily::runsc) {
    // Control groups are ours; files that can be written are memory of the runtime's kernel; what
    // is only read is served by a process apart from it, with no door to this machine's files.
    return {"enclosure-keeper",
            "--",
            seconds,
            found.path,
            "--platform=systrap",
            "--network=none",
            "--overlay2=none",
            "--ignore-cgroups",
            "--directfs=false"};
  }
  std::vector<std::string> words{"runtime-keeper", "--", records()};
  if (found.family == RuntimeFamily::crun) {
    words.insert(words.end(), {is_mixed() ? "hidden" : "unnamed", seconds, found.path,
                               "--cgroup-manager=disabled"});
  } else if (may_make_groups()) {
    words.insert(words.end(), {"own", seconds, found.path});
  } else {
    words.insert(words.end(), {"unnamed", seconds, found.path, "--rootless=true"});
  }
  return words;
}

bool OciEngine::remove_rest(const std::string& id) noexcept {
  return guest::remove_runtime_rest(records(), id);
}

std::vector<std::string> OciEngine::ids_of_rest() const noexcept try {
  return sys::list_directory_at(AT_FDCWD, records().c_str());
} catch (const std::exception&) {
  // No runtime has kept anything yet.
  return {};
}

}  // namespace casemate::oci
