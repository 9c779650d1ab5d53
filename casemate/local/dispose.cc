#include <fmt/format.h>
#include <stdio.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/local/lease.h"
#include "casemate/local/local_sandboxes.h"
#include "casemate/sys/cgroup.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::local {
using sys::UniqueFd;

namespace {

// Whoever holds a key's lock makes or ends a sandbox. One that takes so long is stopped.
constexpr std::chrono::seconds kLockPatience{30};
// Of the sweeps of one process, which go with each acquire of what it does not hold and each
// disposal, one of so many looks at the live ones too: so seldom that it costs little beside the
// rest, so often that not much is left meanwhile.
constexpr unsigned kSweepsToOneOfAll = 256;

}  // namespace

int LocalSandboxes::dispose_where(
    const std::function<bool(const Record&)>& wanted,
    const std::function<bool(std::string_view name)>& may_be) noexcept {
  int ended = 0;
  if (!has_state()) return ended;
  try {
    const std::shared_ptr<const StateDirectory> kept = state();
    const StateDirectory& found = *kept;
    for (const std::string& digest : sys::list_directory_at(found.sandboxes(), ".")) {
      if ((!may_be || may_be(digest)) && end_wanted(digest, wanted)) ++ended;
    }
    held_.drop_dead();
    sweep(/*everything=*/false);
  } catch (const std::exception& error) {
    log(LogLevel::warning, fmt::format("ending sandboxes: {}", error.what()));
  }
  return ended;
}

int LocalSandboxes::dispose_of(std::string_view scope, std::string_view thread_id,
                               const std::function<bool(const Record&)>& wanted) noexcept {
  return dispose_where(
      wanted, [conversation = conversation_digits(scope, thread_id)](std::string_view name) {
        return may_be_of(conversation, name);
      });
}

bool LocalSandboxes::dispose_id(std::string_view id) noexcept {
  const auto wanted = [&](const Record& record) { return record.id == id; };
  // No other has the id of one that is held here.
  const std::string held = held_.name_of(id);
  if (!held.empty() && dispose_where(wanted, [&](std::string_view name) { return name == held; })) {
    return true;
  }
  return dispose_where(wanted) > 0;
}

// Whether it was wanted and lived. A failure is this sandbox's alone: the others of a conversation
// still have to end.
bool LocalSandboxes::end_wanted(const std::string& digest,
                                const std::function<bool(const Record&)>& wanted) {
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  const UniqueFd directory = open_sandbox(found.sandboxes(), digest);
  if (!directory) return false;
  const Record first = read_record(directory.get(), digest);
  if (!wanted(first)) return false;
  try {
    CallControl patience;
    patience.deadline = std::chrono::steady_clock::now() + kLockPatience;
    const FileLock lock = FileLock::wait(found.locks(), lock_name(digest),
                                         FileLock::Kind::exclusive, patience, "the sandbox's lock");
    // Another may have taken its place while this one waited.
    const UniqueFd current = open_sandbox(found.sandboxes(), digest);
    if (!current) return false;
    const Record record = read_record(current.get(), digest);
    return wanted(record) && discard(digest, record.id);
  } catch (const std::exception& error) {
    log(LogLevel::error, fmt::format("ending sandbox {} (scope '{}', thread '{}'): {}", first.id,
                                     escape_for_display(first.key.scope),
                                     escape_for_display(first.key.thread_id), error.what()));
    return false;
  }
}

const ControlGroupLayout& LocalSandboxes::groups_of(const Record& record) const {
  return record.groups == ControlGroupLayout{} ? groups().layout : record.groups;
}

// Under the key's lock. Returns whether it lived and is known to have ended.
bool LocalSandboxes::discard(const std::string& digest, const std::string& id) {
  return discard_from(state()->sandboxes(), digest, digest, id);
}

// The same of one that is `name` in that directory of the state now, and was had under `digest`.
bool LocalSandboxes::discard_from(int parent, const std::string& name, const std::string& digest,
                                  const std::string& id) {
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  // Until the end: given back before, the last lease would end the sandbox by itself, and it would
  // not count as ended here.
  const std::shared_ptr<const HeldSandbox> held = held_.take(digest, id);
  if (stock_) stock_->forget(id);
  if (renameat(parent, name.c_str(), found.trash(), id.c_str()) < 0) {
    if (errno == ENOENT) return false;
    // A directory that an earlier discard left under this id: it goes under another name.
    const std::string other = new_sandbox_id();
    if (renameat(parent, name.c_str(), found.trash(), other.c_str()) < 0) {
      sys::throw_errno("discarding a sandbox");
    }
    return end(found.trash(), other);
  }
  // Its own keeper ends it with one message, and removes all that belongs to it. What that leaves,
  // if the keeper is gone, is left to end() as for everybody else.
  bool lived = false;
  bool ended = false;
  if (held && held->kept_by) {
    lived = lease_holds(held->lease.get());
    ended = keeper_.give_up(*held->kept_by);
  }
  if (end(found.trash(), id)) return true;
  if (lived && !ended) sys::throw_error(ETIMEDOUT, "hearing from the keeper that it has ended");
  return lived;
}

// Ends the sandbox in that directory and removes all that belongs to it. Returns whether it lived
// and is known to have ended.
bool LocalSandboxes::end(int parent, const std::string& name) {
  const UniqueFd directory = open_sandbox(parent, name);
  if (!directory) return false;
  // The directory's name is the id wherever it was not given another.
  const Record record = read_record(directory.get(), name);
  const bool lived = kill_agent(directory.get());
  bool gone = true;
  for (const std::string& group : sandbox_directories(groups_of(record), record.id)) {
    if (sys::remove_control_group(group) != 0) gone = false;
  }
  if (!engine_->remove_rest(record.id)) gone = false;
  // Otherwise it stays for the next sweep, which finds the groups by it.
  if (gone) remove_sandbox_directory(parent, name);
  return lived;
}

// Each sandbox in its own: what cannot be ended, the agent of another pid namespace for one, is
// there every time, and keeps nobody from removing the rest.
void LocalSandboxes::attempt(const std::function<void()>& act) noexcept {
  try {
    act();
  } catch (const std::exception& error) {
    log(LogLevel::warning, fmt::format("sweeping: {}", error.what()));
  }
}

void LocalSandboxes::sweep(bool everything) noexcept {
  attempt([&] { sweep_snapshots(state()->snapshots()); });
  attempt([&] {
    const std::shared_ptr<const StateDirectory> found = state();
    for (const std::string& name : sys::list_directory_at(found->trash(), ".")) {
      attempt([&] { end(found->trash(), name); });
    }
  });
  attempt([&] { sweep_new(); });
  // Looking at each live one costs a connection. The first does, for what other processes left, and
  // later ones for what ended with somebody in its control groups: its keeper is done with it.
  {
    const std::lock_guard lock(mutex_);
    everything |= sweeps_++ % kSweepsToOneOfAll == 0;
  }
  if (!everything) return;
  attempt([&] { sweep_sandboxes(); });
  attempt([&] { sweep_rest(); });
}

void LocalSandboxes::sweep_new() {
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  if (sys::list_directory_at(found.fresh(), ".").empty()) return;
  // Nobody is making one while this is held: what is there was left.
  const auto lock = FileLock::attempt(found.locks(), kNewLock, FileLock::Kind::exclusive);
  if (!lock) return;
  for (const std::string& name : sys::list_directory_at(found.fresh(), ".")) {
    attempt([&] { end(found.fresh(), name); });
  }
}

void LocalSandboxes::sweep_sandboxes() {
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  for (const std::string& digest : sys::list_directory_at(found.sandboxes(), ".")) {
    attempt([&] {
      const UniqueFd directory = open_sandbox(found.sandboxes(), digest);
      if (!directory || is_alive(directory.get())) return;
      const auto lock =
          FileLock::attempt(found.locks(), lock_name(digest), FileLock::Kind::exclusive);
      if (!lock) return;
      const UniqueFd current = open_sandbox(found.sandboxes(), digest);
      if (!current || is_alive(current.get())) return;
      discard(digest, read_record(current.get(), digest).id);
    });
  }
}

// What a keeper that was killed left elsewhere after its sandbox's directory was gone: its runtime
// may have written a record a moment later.
void LocalSandboxes::sweep_rest() {
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  // Before the live ones are looked at: what is begun later is not in it.
  const std::vector<std::string> rest = engine_->ids_of_rest();
  if (rest.empty()) return;
  const auto lock = FileLock::attempt(found.locks(), kNewLock, FileLock::Kind::exclusive);
  if (!lock) return;
  std::set<std::string> living;
  for (const std::string& digest : sys::list_directory_at(found.sandboxes(), ".")) {
    const UniqueFd directory = open_sandbox(found.sandboxes(), digest);
    if (directory) living.insert(read_record(directory.get(), digest).id);
  }
  // Those that end in this moment too; what begins to end was among the others before.
  for (const std::string& name : sys::list_directory_at(found.trash(), ".")) living.insert(name);
  for (const std::string& id : rest) {
    if (!living.contains(id)) engine_->remove_rest(id);
  }
}

}  // namespace casemate::local
