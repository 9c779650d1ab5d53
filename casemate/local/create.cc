#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/guest/agent/enclosed_agent.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/lease.h"
#include "casemate/local/local_sandboxes.h"
#include "casemate/local/spec_check.h"
#include "casemate/sys/cgroup.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/staged_file.h"

namespace casemate::local {
using sys::UniqueFd;

namespace {

template <std::size_t Bytes>
void copy_text(char (&to)[Bytes], const std::string& from) {
  if (from.size() >= Bytes) {
    throw SandboxUnavailable(fmt::format("\"{}\" is longer than {} bytes", from, Bytes - 1));
  }
  std::memcpy(to, from.c_str(), from.size() + 1);
}

// Some of a sandbox's control groups could not be made, which came out when it was there.
class GroupsRefused : public SandboxUnavailable {
  using SandboxUnavailable::SandboxUnavailable;
};

}  // namespace

Resources Engine::bounds_as_a_whole(const Resources& resources) const {
  Resources bounds = resources;
  bounds.memory_bytes.value += guest::kOwnKernelBytes;
  return bounds;
}

HeldSandbox LocalSandboxes::create(const SandboxKey& key, const SandboxSpec& spec,
                                   const ImageChoice& image, const std::string& digest,
                                   const CallControl& control,
                                   const std::function<void(const HeldSandbox&)>& publish) {
  const auto publish_it = [&](const HeldSandbox& made) {
    publish ? publish(made) : this->publish(made, digest);
  };
  const auto make = [&] {
    try {
      return create_once(key, spec, image, control, publish_it);
    } catch (const GroupsRefused&) {
      // It knows from now on.
      return create_once(key, spec, image, control, publish_it);
    }
  };
  try {
    return make();
  } catch (const LostInTheMaking& loss) {
    // Nobody has heard of it yet. A keeper that was killed while it was idle is noticed here, too,
    // and a process that somebody killed while it waited to become a sandbox.
    log(LogLevel::warning, fmt::format("{}; making the sandbox once more", loss.message()));
    return make();
  }
}

HeldSandbox LocalSandboxes::create_once(const SandboxKey& key, const SandboxSpec& spec,
                                        const ImageChoice& image, const CallControl& control,
                                        const std::function<void(const HeldSandbox&)>& publish) {
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  Record record{.id = new_sandbox_id(),
                .key = key,
                .kind = spec.kind,
                .fingerprint = image.fingerprint,
                .image = image.name,
                .environment = image.environment,
                .work_dir = spec.work_dir,
                .isolation = declarations().isolation.value_or(Isolation::process),
                .created = boot_time(),
                .labels = spec.labels,
                .egress = spec.egress,
                .egress_allow = spec.egress_allow,
                .limits_not_held = {},
                .groups = groups().layout,
                .ungrouped = {},
                .pids = spec.resources.pids.value,
                .cpu_seconds = 0,
                .cpu_millis = 0,
                .disk_bytes = spec.resources.disk_bytes.value,
                .disk_inodes = spec.resources.disk_inodes.value,
                .enclosed = !engine_->shares_kernel()};
  std::vector<GroupStep> steps =
      record.enclosed
          ? sandbox_steps(record.groups, record.id, engine_->bounds_as_a_whole(spec.resources),
                          GroupMembers::whole_sandbox)
          : sandbox_steps(record.groups, record.id, spec.resources);
  // What the agent lives in is there before it, the rest is made beside it: 0.3 ms of the 1.4
  // that a sandbox took.
  PartedSteps parts{.leading = {}, .others = {}};
  if (record.enclosed || groups_are_refused_) {
    parts.leading = std::move(steps);
  } else {
    parts = part_steps(std::move(steps), agent_directories(record.groups, record.id));
  }
  const FileLock making =
      FileLock::wait(found.locks(), kNewLock, FileLock::Kind::shared, control, "a sweep");
  std::optional<KeptBy> kept_by;
  const auto leave_nothing = [&] {
    if (kept_by) keeper_.give_up(*kept_by);
    try {
      end(found.fresh(), record.id);
      // Who ended it before did so perhaps before the last of them was made.
      for (const std::string& group : sandbox_directories(record.groups, record.id)) {
        sys::remove_control_group(group);
      }
    } catch (const std::exception& error) {
      // Why there is no sandbox is what the caller has to hear; the next sweep ends what is left.
      log(LogLevel::warning,
          fmt::format("ending sandbox {}, which could not be made: {}", record.id, error.what()));
    }
  };
  try {
    sys::make_directory_at(found.fresh(), record.id.c_str(), 0700);
    UniqueFd directory = open_sandbox(found.fresh(), record.id);
    if (!directory) sys::throw_errno("opening the sandbox's directory");
    auto failed = carry_out(parts.leading);
    if (!failed.empty()) failed.merge(carry_out(std::exchange(parts.others, {})));
    record.limits_not_held =
        settle_limits(spec.resources, declarations(),
                      engine_->holds_limits_inside() ? decltype(failed){} : failed);
    for (const auto& [limit, why] : failed) record.ungrouped.insert(limit);
    if (!failed.contains(Limit::cpu)) {
      if (record.groups.cpu) record.cpu_millis = spec.resources.cpu_millis.value;
      if (record.groups.accounting && spec.resources.cpu_seconds && !record.enclosed) {
        record.cpu_seconds = spec.resources.cpu_seconds->value;
      }
    }
    write_record(directory.get(), record);
    engine_->prepare(directory.get(), image, spec, control);
    sys::write_file_at(directory.get(), guest::kBusyLockName, "", 0600);
    mark_used(directory.get());
    auto [lease, sandboxes_end] = sys::socket_pair(sys::SocketType::stream);
    // None of it is expected to fail: the record and the request say so.
    std::map<Limit, std::string> refused;
    kept_by = ask_keeper(record, spec, image, {directory.get(), sandboxes_end.get()}, control,
                         [&] { refused = carry_out(parts.others); });
    if (!refused.empty()) {
      groups_are_refused_ = true;
      throw GroupsRefused(fmt::format("the control groups of a sandbox could not be made: {}",
                                      refused.begin()->second));
    }
    sandboxes_end.reset();
    if (!lease_holds(lease.get()))
      throw LostInTheMaking("the sandbox ended right after it was made");
    HeldSandbox made{.record = record,
                     .directory = std::move(directory),
                     .lease = std::move(lease),
                     .keep_idle = KeepIdle(spec.keep_idle),
                     .kept_by = kept_by};
    publish(made);
    return made;
  } catch (const std::system_error& error) {
    leave_nothing();
    throw SandboxUnavailable(fmt::format("a sandbox could not be made: {}", error.what()),
                             provider_hint(error));
  } catch (...) {
    leave_nothing();
    throw;
  }
}

void LocalSandboxes::publish(const HeldSandbox& made, const std::string& digest) {
  const std::shared_ptr<const StateDirectory> found = state();
  sys::rename_directory(found->fresh(), made.record.id, found->sandboxes(), digest);
}

// Given the sandbox's directory and its end of the first lease.
KeptBy LocalSandboxes::ask_keeper(const Record& record, const SandboxSpec& spec,
                                  const ImageChoice& image, std::vector<int> descriptors,
                                  const CallControl& control,
                                  const std::function<void()>& meanwhile) {
  const Resources& resources = spec.resources;
  guest::CreateSandbox request{};
  copy_text(request.id, record.id);
  copy_text(request.work_dir, record.work_dir);
  for (const std::string& path : sandbox_directories(record.groups, record.id)) {
    copy_text(request.control_group_paths[request.control_groups++], path);
  }
  request.keep_idle_ms = static_cast<std::uint64_t>(spec.keep_idle.count());
  request.disk_bytes = resources.disk_bytes.value;
  request.disk_inodes = resources.disk_inodes.value;
  request.open_files =
      record.limits_not_held.contains(Limit::files) ? 0 : resources.open_files.value;
  // Without the controller the kernel still counts processes by user and user namespace.
  if (record.enclosed || !held_part(record.groups, record.ungrouped).pids) {
    request.processes = resources.pids.value;
  }
  // Beside a counter of the call's it is for a process that nobody looked at in time: later, so
  // that the counter, which names the limit, is first.
  if (resources.cpu_seconds) {
    request.cpu_seconds = resources.cpu_seconds->value + (record.cpu_seconds != 0 ? 1 : 0);
  }
  std::vector<UniqueFd> members = open_members(agent_directories(record.groups, record.id));
  if (record.enclosed) {
    std::vector<UniqueFd> bounded = open_members(bounded_directories(record.groups, record.id));
    request.bounded_groups = static_cast<std::uint32_t>(bounded.size());
    std::ranges::move(bounded, std::back_inserter(members));
  }
  if (image.held) {
    request.has_image = 1;
    descriptors.push_back(image.held->root.get());
  }
  for (const UniqueFd& member : members) descriptors.push_back(member.get());
  return keeper_.create(request, descriptors, control, meanwhile);
}

}  // namespace casemate::local
