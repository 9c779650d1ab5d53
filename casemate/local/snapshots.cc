// A local backend's snapshots: what its sandboxes keep, taken by their own guest and put back by
// another's (guest/agent/tree_archive.h), kept here as bytes (snapshot_store.h).

#include <fmt/format.h>
#include <stdio.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/connection.h"
#include "casemate/guest/protocol.h"
#include "casemate/local/lease.h"
#include "casemate/local/local_sandboxes.h"
#include "casemate/local/snapshot_store.h"
#include "casemate/local/spec_check.h"
#include "casemate/sys/error.h"

namespace casemate::local {
using sys::UniqueFd;

namespace {

void close_known(guest::AgentCall& call, const std::string& sandbox) {
  if (call.close()) return;
  throw SandboxUnavailable(
      fmt::format("the end of a call of ours in the sandbox {} could not be shown", sandbox),
      "dispose the sandbox");
}

// Of a caller who bounds nothing: what is slower than that is kept slow by its programs.
constexpr std::chrono::minutes kPatience{10};

template <typename Act>
auto within_patience(const CallControl& control, Act act) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  if (control.deadline && *control.deadline <= until) return act(control);
  CallControl bounded = control;
  bounded.deadline = until;
  try {
    return act(bounded);
  } catch (const SandboxTimeout&) {
    if (std::chrono::steady_clock::now() < until) throw;
    std::throw_with_nested(
        SandboxTimeout(fmt::format("a snapshot or a restore took longer than {} minutes, which is "
                                   "the longest that any may take",
                                   kPatience.count()),
                       "let the sandbox's programs keep less, in fewer and less deep directories"));
  }
}

[[noreturn]] void refuse_unknown(std::string_view id) {
  throw NoSuchSnapshot(
      fmt::format("no snapshot of this scope has the id '{}'", escape_for_display(id)),
      "it may be over, as its conversation or the process that took it; take another");
}

}  // namespace

// In which nobody's program runs, and which nobody is kept waiting by.
std::unique_ptr<guest::AgentCall> LocalSandboxes::open_own_call(
    const std::shared_ptr<const HeldSandbox>& held, WayOut way_out, const CallControl& control) {
  guest::AgentSandboxParts parts = parts_of(held, /*reused=*/true);
  if (way_out == WayOut::none) {
    parts.egress = {};
    parts.door_rules = {};
  }
  const auto shared = std::make_shared<const guest::AgentSandboxParts>(std::move(parts));
  CallProfile profile;
  profile.id = random_hex(6);
  return std::make_unique<guest::AgentCall>(
      guest::ask_for_call(profile, *shared, guest::CallUse::later, control), shared, control);
}

// Under the key's lock, which is given back with this: how long the rest takes is the guest's
// choice, and whoever ends the sandbox waits for none of it.
LocalSandboxes::Taking LocalSandboxes::begin_taking(const std::string& digest,
                                                    std::string_view kind,
                                                    const CallControl& control) {
  const std::shared_ptr<const StateDirectory> found = state();
  const FileLock lock = FileLock::wait(found->locks(), lock_name(digest), FileLock::Kind::exclusive,
                                       control, "the sandbox's lock");
  std::shared_ptr<const HeldSandbox> held = find_living(digest, control);
  if (!held) {
    throw NoSuchSandbox(
        fmt::format("no sandbox of kind {} lives under this key", escape_for_display(kind)),
        "acquire it and let programs prepare it first");
  }
  const Record& record = held->record;
  if (record.fingerprint.empty()) guest::throw_another_build(record.id);
  auto idle = lock_idle(held->directory.get());
  if (!idle) {
    throw SandboxBusy(
        fmt::format("the sandbox {} of kind {} runs a call, or a program that stays: what it keeps "
                    "may change at any time",
                    record.id, escape_for_display(kind)),
        "close its calls and end what stays first");
  }
  // Whoever disposes the key from now on finds it, and what is taken is not kept then.
  auto file = std::make_unique<NewSnapshot>(found->snapshots(), record, options_.max_snapshots);
  return {
      .state = found, .held = std::move(held), .idle = *std::move(idle), .file = std::move(file)};
}

SandboxSnapshot LocalSandboxes::snapshot(const SandboxKey& key, std::string_view kind,
                                         const CallControl& control) {
  check_key(key);
  sweep(/*everything=*/false);
  return within_patience(control, [&](const CallControl& bounded) {
    try {
      Taking taking = begin_taking(sandbox_name(key, kind), kind, bounded);
      const Record& record = taking.held->record;
      const auto call = open_own_call(taking.held, WayOut::none, bounded);
      call->archive(
          guest::most_archive_bytes(record.disk_bytes, record.disk_inodes),
          [&](std::string_view bytes) { taking.file->append(bytes); }, bounded);
      close_known(*call, record.id);
      SandboxSnapshot snapshot{.id = taking.file->id(),
                               .backend = name_,
                               .key = key,
                               .kind = std::string(kind),
                               .bytes = taking.file->bytes()};
      std::optional<FileLock> lease = taking.file->keep();
      if (!lease) {
        throw SandboxUnavailable("the snapshot was disposed while it was taken",
                                 "take it again, or leave the conversation be");
      }
      taken_.put(snapshot.id, taking.state, *std::move(lease));
      return snapshot;
    } catch (const std::system_error& error) {
      throw SandboxUnavailable(fmt::format("a snapshot could not be kept: {}", error.what()),
                               provider_hint(error));
    }
  });
}

std::shared_ptr<Sandbox> LocalSandboxes::restore(const SandboxKey& key, const SandboxSpec& spec,
                                                 std::string_view snapshot_id,
                                                 const CallControl& control) {
  check_key(key);
  check_spec(spec);
  engine_->check_available();
  check_servable(spec, declarations(), groups().missing);
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  held_.drop_dead();
  sweep(/*everything=*/false);
  std::optional<KeptSnapshot> snapshot = KeptSnapshot::open(found.snapshots(), snapshot_id);
  if (!snapshot || snapshot->source().key.scope != key.scope) refuse_unknown(snapshot_id);
  const ImageChoice image = choose_image(spec, images_, engine_->build(), control);
  const Record& source = snapshot->source();
  if (source.kind != spec.kind || source.fingerprint != image.fingerprint) {
    throw SandboxSnapshotMismatch(
        fmt::format("the snapshot {} was taken of a sandbox of kind {} that was made from image {} "
                    "with certain limits, egress rules and build: kind {} with this spec differs",
                    snapshot_id, escape_for_display(source.kind), escape_for_display(source.image),
                    escape_for_display(spec.kind)),
        "restore it with the spec that the sandbox was acquired with, or take another");
  }
  keeper_.start_ahead();
  const std::string digest = sandbox_name(key, spec.kind);
  // Had once the new one is whole: how long that takes is the guest's choice.
  std::optional<FileLock> lock;
  return within_patience(control, [&](const CallControl& bounded) {
    return hold(digest,
                create(key, spec, image, digest, bounded,
                       [&](const HeldSandbox& made) {
                         fill(made, *snapshot, bounded);
                         replace(made, digest, bounded, *snapshot, lock);
                       }),
                /*reused=*/false);
  });
}

// Publishes `made` under the key's lock, which `lock` has then, and ends what was there: in this
// order, so that whatever goes wrong leaves one of them.
void LocalSandboxes::replace(const HeldSandbox& made, const std::string& digest,
                             const CallControl& control, const KeptSnapshot& snapshot,
                             std::optional<FileLock>& lock) {
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  lock.emplace(FileLock::wait(found.locks(), lock_name(digest), FileLock::Kind::exclusive, control,
                              "the sandbox's lock"));
  if (!snapshot.is_there()) {
    throw NoSuchSnapshot("the snapshot was disposed while it was restored", "take another");
  }
  if (!lease_holds(made.lease.get())) {
    throw SandboxUnavailable("the sandbox ended right after it was restored");
  }
  const UniqueFd replaced = open_sandbox(found.sandboxes(), digest);
  if (!replaced) return publish(made, digest);
  const std::string replaced_id = read_record(replaced.get(), digest).id;
  const auto idle = lock_idle(replaced.get());
  if (!idle && is_alive(replaced.get())) {
    throw SandboxBusy(
        fmt::format("the sandbox {} of kind {} runs a call, so nothing takes its place",
                    replaced_id, escape_for_display(made.record.kind)),
        "wait for the call to end, or restore under another key");
  }
  const std::string& name = made.record.id;
  if (renameat2(found.fresh(), name.c_str(), found.sandboxes(), digest.c_str(), RENAME_EXCHANGE) <
      0) {
    sys::throw_errno("publishing the sandbox");
  }
  try {
    discard_from(found.fresh(), name, digest, replaced_id);
  } catch (const std::exception& error) {
    // It has lost its place; a sweep tries again.
    log(LogLevel::error,
        fmt::format("ending sandbox {}, which sandbox {} has taken the place of: {}", replaced_id,
                    name, error.what()));
  }
}

// Nobody else knows of it yet.
void LocalSandboxes::fill(const HeldSandbox& made, KeptSnapshot& snapshot,
                          const CallControl& control) {
  const std::shared_ptr<const HeldSandbox> borrowed(std::shared_ptr<void>(), &made);
  const auto call = open_own_call(borrowed, WayOut::none, control);
  call->unpack([&] { return snapshot.next(); }, control);
  close_known(*call, made.record.id);
}

bool LocalSandboxes::dispose_snapshot(std::string_view id) noexcept {
  if (!has_state()) return false;
  try {
    taken_.forget(std::string(id));
    return remove_snapshot(state()->snapshots(), id);
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        fmt::format("disposing snapshot {}: {}", escape_for_display(id), error.what()));
    return false;
  }
}

void LocalSandboxes::dispose_snapshots_where(
    const std::function<bool(const Record&)>& wanted) noexcept {
  if (!has_state()) return;
  try {
    remove_snapshots(state()->snapshots(), [&](const std::string& id, const Record& source) {
      if (!wanted(source)) return false;
      taken_.forget(id);
      return true;
    });
  } catch (const std::exception& error) {
    log(LogLevel::warning, fmt::format("disposing snapshots: {}", error.what()));
  }
}

}  // namespace casemate::local
