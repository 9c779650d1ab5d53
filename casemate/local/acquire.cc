#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/core/egress.h"
#include "casemate/core/errors.h"
#include "casemate/egress/gateway.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/connection.h"
#include "casemate/local/call_accounting.h"
#include "casemate/local/lease.h"
#include "casemate/local/local_sandboxes.h"
#include "casemate/local/spec_check.h"
#include "casemate/sys/file.h"
#include "casemate/sys/socket.h"

namespace casemate::local {
using sys::UniqueFd;

namespace {

void check_control(const CallControl& control) {
  if (control.stop.stop_requested()) throw SandboxCancelled("cancelled before a sandbox was had");
  if (control.deadline && std::chrono::steady_clock::now() >= *control.deadline) {
    throw SandboxTimeout("the deadline came before a sandbox was had");
  }
}

// For what outlives the hold on the sandbox.
UniqueFd directory_again(const HeldSandbox& held) try {
  return sys::duplicate(held.directory.get());
} catch (const std::system_error& error) {
  throw SandboxUnavailable(fmt::format("a call cannot be counted: {}", error.what()),
                           provider_hint(error));
}

}  // namespace

std::shared_ptr<Sandbox> LocalSandboxes::acquire(const SandboxKey& key, const SandboxSpec& spec,
                                                 const CallControl& control) {
  check_key(key);
  check_spec(spec);
  // Who has stopped already still hears what can be told without an engine: so it can be asked what
  // would be refused, and nothing is made. A sandbox that is there has its bounds already.
  if (control.stop.stop_requested()) {
    const BackendDeclarations declared = declarations();
    check_servable(spec, declared, groups().missing);
    settle_limits(spec.resources, declared, {});
  }
  check_control(control);
  engine_->get_ready(control);
  check_servable(spec, declarations(), groups().missing);
  const std::string digest = sandbox_name(key, spec.kind);
  const std::string there = options_.state_dir + "/" + guest::kPublishedName + "/" + digest;
  const bool is_new = access(there.c_str(), F_OK) != 0;
  // Refused before anything is begun or fetched.
  if (is_new) settle_limits(spec.resources, declarations(), {});
  const ImageChoice image = choose_image(spec, images_, engine_->build(), control);
  const std::string& fingerprint = image.fingerprint;
  // Held by this process, so nobody else had reason to make or replace it: no lock and no file.
  const auto find_held = [&] {
    auto held = held_.find(digest);
    if (!held || held->record.fingerprint != fingerprint) return decltype(held)();
    if (held->keep_idle.change(spec.keep_idle)) {
      change_keep_idle(held->lease.get(), spec.keep_idle);
    }
    return held;
  };
  if (const auto held = find_held()) return hand_out(held, /*reused=*/true);

  // Whoever meets a sandbox that is there needs no keeper.
  if (is_new) keeper_.start_ahead();
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  held_.drop_dead();
  sweep(/*everything=*/false);
  const FileLock lock = FileLock::wait(found.locks(), lock_name(digest), FileLock::Kind::exclusive,
                                       control, "the sandbox's lock");
  // Another thread may have made it meanwhile.
  if (const auto held = find_held()) return hand_out(held, /*reused=*/true);
  if (UniqueFd directory = open_sandbox(found.sandboxes(), digest)) {
    Record record = read_record(directory.get(), digest);
    // Without a wish: if this spec is refused, what the others wished still counts.
    std::optional<UniqueFd> lease = take_lease(directory.get(), std::nullopt, control);
    const std::string id = record.id;
    if (lease) {
      if (record.fingerprint == fingerprint) {
        change_keep_idle(lease->get(), spec.keep_idle);
        return hold(digest,
                    {.record = std::move(record),
                     .directory = std::move(directory),
                     .lease = std::move(*lease),
                     .keep_idle = KeepIdle(spec.keep_idle)},
                    /*reused=*/true);
      }
      const auto idle = lock_idle(directory.get());
      if (!idle) {
        throw SandboxBusy(
            fmt::format("the sandbox {} of kind {} runs a call and was made with another image, "
                        "limits, egress or build",
                        id, spec.kind),
            "wait for the call to end, or use another thread in the key");
      }
      // Under the lock: a call that opens in this moment is refused instead of killed.
      discard(digest, id);
    } else {
      discard(digest, id);
    }
  }
  if (is_pooled(fingerprint)) {
    if (const auto ready = adopt_ready(key, spec, fingerprint, digest)) {
      held_.put(digest, ready);
      return hand_out(ready, /*reused=*/false);
    }
  }
  return hold(digest, create(key, spec, image, digest, control), /*reused=*/false);
}

std::shared_ptr<Sandbox> LocalSandboxes::attach(const SandboxKey& key, std::string_view kind,
                                                const CallControl& control) {
  check_key(key);
  check_control(control);
  const std::string digest = sandbox_name(key, kind);
  if (const auto held = held_.find(digest)) return hand_out(held, /*reused=*/true);
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  const FileLock lock = FileLock::wait(found.locks(), lock_name(digest), FileLock::Kind::exclusive,
                                       control, "the sandbox's lock");
  if (const auto held = held_.find(digest)) return hand_out(held, /*reused=*/true);
  UniqueFd directory = open_sandbox(found.sandboxes(), digest);
  if (directory) {
    Record record = read_record(directory.get(), digest);
    std::optional<UniqueFd> lease = take_lease(directory.get(), std::nullopt, control);
    if (lease) {
      if (record.fingerprint.empty()) guest::throw_another_build(record.id);
      return hold(digest,
                  {.record = std::move(record),
                   .directory = std::move(directory),
                   .lease = std::move(*lease)},
                  /*reused=*/true);
    }
  }
  throw NoSuchSandbox(fmt::format("no sandbox of kind {} lives under this key", kind),
                      "acquire makes one");
}

std::shared_ptr<const HeldSandbox> LocalSandboxes::find_living(const std::string& digest,
                                                               const CallControl& control) {
  if (auto held = held_.find(digest)) return held;
  const std::shared_ptr<const StateDirectory> found = state();
  UniqueFd directory = open_sandbox(found->sandboxes(), digest);
  if (!directory) return nullptr;
  Record record = read_record(directory.get(), digest);
  std::optional<UniqueFd> lease = take_lease(directory.get(), std::nullopt, control);
  if (!lease) return nullptr;
  return std::make_shared<const HeldSandbox>(HeldSandbox{
      .record = std::move(record), .directory = std::move(directory), .lease = std::move(*lease)});
}

// Under the key's lock. The lease is this process's from now on.
std::shared_ptr<Sandbox> LocalSandboxes::hold(const std::string& digest, HeldSandbox sandbox,
                                              bool reused) {
  const auto held = std::make_shared<const HeldSandbox>(std::move(sandbox));
  held_.put(digest, held);
  return hand_out(held, reused);
}

guest::AgentSandboxParts LocalSandboxes::parts_of(const std::shared_ptr<const HeldSandbox>& held,
                                                  bool reused) const {
  const Record& record = held->record;
  guest::AgentSandboxParts parts;
  parts.info = {.id = record.id,
                .backend = name_,
                .isolation = record.isolation,
                .reused = reused,
                .image = record.image,
                .egress = record.egress,
                .work_dir = record.work_dir,
                .limits_not_held = record.limits_not_held};
  parts.connect = [held](const CallControl&) {
    std::optional<UniqueFd> connection;
    try {
      connection = connect_to(held->directory.get(), guest::kAgentSocketName);
    } catch (const std::system_error& error) {
      throw SandboxUnavailable(fmt::format("the sandbox cannot be reached: {}", error.what()),
                               provider_hint(error));
    }
    if (!connection) {
      // Its agent may let go of the lease a moment after it closed its socket: whoever acquires it
      // again shall not get the same one by that.
      sys::shut_down(held->lease.get());
      throw SandboxUnavailable("the sandbox has ended", "acquire it again");
    }
    return std::move(*connection);
  };
  // The doors are with the call's programs, and none of them.
  const std::uint64_t own_processes = record.egress == Egress::allowlist ? 1 : 0;
  parts.account = [held, own_processes,
                   layout = record.enclosed ? ControlGroupLayout{}
                                            : held_part(record.groups, record.ungrouped)](
                      std::string_view call, guest::CallUse use, const CallControl& control) {
    return std::make_shared<LocalCallAccounting>(
        layout, held->record.id, std::string(call),
        CallBounds{.pids = held->record.pids + own_processes,
                   .cpu_seconds = held->record.cpu_seconds,
                   .cpu_millis = held->record.cpu_millis},
        directory_again(*held), use, control);
  };
  parts.environment = record.environment;
  // Who listens for one with a kernel of its own is no process of the sandbox, unless the engine
  // knows which is.
  if (!record.enclosed || engine_->holds_limits_inside()) {
    parts.first_process = [held, engine = engine_]() -> std::optional<int> {
      const std::optional<int> agent = agent_of(held->directory.get());
      return agent ? engine->first_process(*agent) : std::nullopt;
    };
  }
  if (record.egress == Egress::allowlist) {
    parts.door_rules = door_rules(record.egress_allow);
    EgressOptions egress = options_.egress;
    egress.allow = record.egress_allow;
    egress.log = options_.log;
    parts.egress = [egress = std::move(egress)](std::string_view call) {
      EgressOptions own = egress;
      own.call = call;
      return std::make_unique<EgressGateway>(std::move(own));
    };
  }
  // For a handle that outlives the backend.
  parts.lease = held;
  parts.log = options_.log;
  return parts;
}

std::shared_ptr<Sandbox> LocalSandboxes::hand_out(const std::shared_ptr<const HeldSandbox>& held,
                                                  bool reused) {
  guest::AgentSandboxParts parts = parts_of(held, reused);
  const Record& record = held->record;
  // What it consists of may count as the programs' where processes are counted by user.
  const bool grouped = record.enclosed || held_part(record.groups, record.ungrouped).pids;
  if (grouped && record.egress != Egress::allowlist) {
    parts.ready = held->ready;
    parts.ready_calls = ready_calls_;
  }
  if (stock_) {
    if (is_pooled(record.fingerprint)) stock_->tend(held);
    // Asked again at each call: the pool may have learned since what it is for.
    parts.held = [backend = weak_from_this(), held](
                     const ExpectedProgram& program,
                     const CallControl& control) -> std::unique_ptr<Call> {
      const auto alive = backend.lock();
      if (!alive || !alive->is_pooled(held->record.fingerprint)) return nullptr;
      alive->stock_->tend(held);
      return alive->stock_->take_program(held->record.id, program, control);
    };
  }
  return std::make_shared<guest::AgentSandbox>(std::move(parts));
}

}  // namespace casemate::local
