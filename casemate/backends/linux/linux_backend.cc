#include "casemate/backends/linux/linux_backend.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "casemate/backends/linux/call_accounting.h"
#include "casemate/backends/linux/control_groups.h"
#include "casemate/backends/linux/held_sandboxes.h"
#include "casemate/backends/linux/keeper_client.h"
#include "casemate/backends/linux/lease.h"
#include "casemate/backends/linux/spec_check.h"
#include "casemate/backends/linux/state_directory.h"
#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/sys/cgroup.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate {

using namespace linux_backend;
using sys::UniqueFd;

namespace {

constexpr char kDefaultStateDirectory[] = "/run/casemate";

std::string new_id() { return random_hex(8); }

UniqueFd open_sandbox(int parent, const std::string& name) {
  return UniqueFd(openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

std::optional<Record> read_record(int directory) {
  try {
    const auto text = sys::read_file_if_there(directory, guest::kRecordName, 1 << 20);
    return text ? decode_record(*text) : std::nullopt;
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

// What the kernel refuses in the state directory or the control groups is the provider's failure.
template <typename Act>
auto as_provider(Act&& act) {
  try {
    return act();
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(fmt::format("the linux backend: {}", error.what()),
                             descriptor_hint(error));
  }
}

void check_control(const CallControl& control) {
  if (control.stop.stop_requested()) throw SandboxCancelled("cancelled before a sandbox was had");
  if (control.deadline && std::chrono::steady_clock::now() >= *control.deadline) {
    throw SandboxTimeout("the deadline came before a sandbox was had");
  }
}

template <std::size_t Bytes>
void copy_text(char (&to)[Bytes], const std::string& from) {
  if (from.size() >= Bytes) {
    throw SandboxUnavailable(fmt::format("\"{}\" is longer than {} bytes", from, Bytes - 1));
  }
  std::memcpy(to, from.c_str(), from.size() + 1);
}

}  // namespace

class LinuxBackend::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(LinuxBackendOptions options)
      : options_(std::move(options)), layout_(detect_layout()) {
    if (options_.state_dir.empty()) options_.state_dir = kDefaultStateDirectory;
  }

  BackendDeclarations declarations() const { return linux_backend::declare(layout_); }
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control);
  std::shared_ptr<Sandbox> attach(const SandboxKey& key, std::string_view kind,
                                  const CallControl& control);
  std::vector<SandboxRecord> list();
  // Ends every sandbox whose record is wanted. Returns how many lived.
  int dispose_where(const std::function<bool(const Record&)>& wanted) noexcept;
  const Log& log() const { return options_.log; }

 private:
  const StateDirectory& state();
  HeldSandbox create(const SandboxKey& key, const SandboxSpec& spec, const std::string& digest,
                     const CallControl& control);
  std::uint64_t ask_keeper(const Record& record, const SandboxSpec& spec, int directory,
                           const CallControl& control);
  std::shared_ptr<Sandbox> hold(const std::string& digest, HeldSandbox sandbox, bool reused);
  std::shared_ptr<Sandbox> hand_out(const std::shared_ptr<const HeldSandbox>& held,
                                    bool reused) const;
  bool end_wanted(const std::string& digest, const std::function<bool(const Record&)>& wanted);
  bool discard(const std::string& digest, const std::string& id);
  bool end(int parent, const std::string& name);
  void remove_groups(const std::string& id) noexcept;
  void sweep(bool everything) noexcept;
  void sweep_new();
  void sweep_sandboxes();

  LinuxBackendOptions options_;
  const ControlGroupLayout layout_;
  KeeperClient keeper_;
  HeldSandboxes held_;
  std::mutex mutex_;
  std::optional<StateDirectory> state_;
  bool swept_ = false;
};

const StateDirectory& LinuxBackend::Impl::state() {
  const std::lock_guard lock(mutex_);
  if (geteuid() != 0) {
    throw SandboxUnavailable(
        fmt::format("the linux backend needs root; this process runs as user {}", geteuid()),
        "run it as root (sudo)");
  }
  if (!state_) state_.emplace(options_.state_dir);
  return *state_;
}

std::shared_ptr<Sandbox> LinuxBackend::Impl::acquire(const SandboxKey& key, const SandboxSpec& spec,
                                                     const CallControl& control) {
  check_key(key);
  check_spec(spec);
  linux_backend::check_servable(spec, declarations());
  check_control(control);
  const std::string digest = identity_digest(key, spec.kind);
  const std::string fingerprint = spec_fingerprint(spec, guest::guest_build_id());
  // Held by this process, so nobody else had reason to make or replace it: no lock and no file.
  const auto find_held = [&] {
    auto held = held_.find(digest);
    return held && held->record.fingerprint == fingerprint ? held : nullptr;
  };
  if (const auto held = find_held()) return hand_out(held, /*reused=*/true);

  const StateDirectory& found = state();
  keeper_.start_ahead();
  held_.drop_dead();
  sweep(/*everything=*/false);
  const FileLock lock = FileLock::wait(found.locks(), lock_name(digest), FileLock::Kind::exclusive,
                                       control, "the sandbox's lock");
  // Another thread may have made it meanwhile.
  if (const auto held = find_held()) return hand_out(held, /*reused=*/true);
  if (UniqueFd directory = open_sandbox(found.sandboxes(), digest)) {
    std::optional<Record> record = read_record(directory.get());
    std::optional<UniqueFd> lease = take_lease(directory.get(), control);
    const std::string id = record ? record->id : new_id();
    if (record && lease) {
      if (record->fingerprint == fingerprint) {
        return hold(digest,
                    {.record = std::move(*record),
                     .directory = std::move(directory),
                     .lease = std::move(*lease)},
                    /*reused=*/true);
      }
      const auto idle =
          FileLock::attempt(directory.get(), guest::kBusyLockName, FileLock::Kind::exclusive);
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
  return hold(digest, create(key, spec, digest, control), /*reused=*/false);
}

HeldSandbox LinuxBackend::Impl::create(const SandboxKey& key, const SandboxSpec& spec,
                                       const std::string& digest, const CallControl& control) {
  const StateDirectory& found = state();
  Record record{.id = new_id(),
                .key = key,
                .kind = spec.kind,
                .fingerprint = spec_fingerprint(spec, guest::guest_build_id()),
                .image = spec.image.value_or("host"),
                .work_dir = spec.work_dir,
                .created = boot_time(),
                .labels = spec.labels,
                .limits_not_held = {},
                .ungrouped = {},
                .pids = spec.resources.pids.value};
  const FileLock making =
      FileLock::wait(found.locks(), kNewLock, FileLock::Kind::shared, control, "a sweep");
  std::optional<std::uint64_t> number;
  const auto leave_nothing = [&] {
    if (number) keeper_.give_up(*number);
    end(found.fresh(), record.id);
  };
  try {
    sys::make_directory_at(found.fresh(), record.id.c_str(), 0700);
    UniqueFd directory = open_sandbox(found.fresh(), record.id);
    if (!directory) sys::throw_errno("opening the sandbox's directory");
    const auto failed = carry_out(sandbox_steps(layout_, record.id, spec.resources));
    record.limits_not_held = linux_backend::settle_limits(spec.resources, declarations(), failed);
    for (const auto& [limit, why] : failed) record.ungrouped.insert(limit);
    sys::write_file_at(directory.get(), guest::kRecordName, encode_record(record), 0600);
    sys::write_file_at(directory.get(), guest::kBusyLockName, "", 0600);
    number = ask_keeper(record, spec, directory.get(), control);
    std::optional<UniqueFd> lease = take_lease(directory.get(), control);
    if (!lease) throw SandboxUnavailable("the sandbox ended right after it was made");
    if (renameat2(found.fresh(), record.id.c_str(), found.sandboxes(), digest.c_str(),
                  RENAME_NOREPLACE) < 0) {
      sys::throw_errno("publishing the sandbox");
    }
    return {
        .record = std::move(record), .directory = std::move(directory), .lease = std::move(*lease)};
  } catch (const std::system_error& error) {
    leave_nothing();
    throw SandboxUnavailable(fmt::format("a sandbox could not be made: {}", error.what()),
                             descriptor_hint(error));
  } catch (...) {
    leave_nothing();
    throw;
  }
}

// Returns the keeper's number for it.
std::uint64_t LinuxBackend::Impl::ask_keeper(const Record& record, const SandboxSpec& spec,
                                             int directory, const CallControl& control) {
  const Resources& resources = spec.resources;
  guest::CreateSandbox request{};
  copy_text(request.id, record.id);
  copy_text(request.work_dir, record.work_dir);
  // A pair of host ids of its own for each sandbox, far above those of people and containers: what
  // the kernel counts by user is then counted by sandbox. Two that meet share those counters only.
  std::random_device device;
  request.first_host_id = 0x70000000U + 2 * (device() & 0x00ffffffU);
  for (const std::string& path : sandbox_directories(layout_, record.id)) {
    copy_text(request.control_group_paths[request.control_groups++], path);
  }
  request.disk_bytes = resources.disk_bytes.value;
  request.disk_inodes = resources.disk_inodes.value;
  request.open_files =
      record.limits_not_held.contains(Limit::files) ? 0 : resources.open_files.value;
  // Without the controller the kernel still counts processes by user and user namespace.
  if (!held_part(layout_, record.ungrouped).pids) request.processes = resources.pids.value;
  request.keep_idle_ms = static_cast<std::uint64_t>(spec.keep_idle.count());
  const std::vector<UniqueFd> members = open_members(agent_directories(layout_, record.id));
  std::vector<int> descriptors{directory};
  for (const UniqueFd& member : members) descriptors.push_back(member.get());
  return keeper_.create(request, descriptors, control);
}

// Under the key's lock. The lease is this process's from now on.
std::shared_ptr<Sandbox> LinuxBackend::Impl::hold(const std::string& digest, HeldSandbox sandbox,
                                                  bool reused) {
  const auto held = std::make_shared<const HeldSandbox>(std::move(sandbox));
  held_.put(digest, held);
  return hand_out(held, reused);
}

std::shared_ptr<Sandbox> LinuxBackend::Impl::hand_out(
    const std::shared_ptr<const HeldSandbox>& held, bool reused) const {
  const Record& record = held->record;
  guest::AgentSandboxParts parts;
  parts.info = {.id = record.id,
                .backend = "linux",
                .isolation = Isolation::container,
                .reused = reused,
                .image = record.image,
                .egress = Egress::closed,
                .work_dir = record.work_dir,
                .limits_not_held = record.limits_not_held};
  parts.connect = [held](const CallControl&) {
    std::optional<UniqueFd> connection;
    try {
      connection = connect_to(held->directory.get(), guest::kAgentSocketName);
    } catch (const std::system_error& error) {
      throw SandboxUnavailable(fmt::format("the sandbox cannot be reached: {}", error.what()),
                               descriptor_hint(error));
    }
    if (!connection) throw SandboxUnavailable("the sandbox has ended", "acquire it again");
    return std::move(*connection);
  };
  parts.account = [held, layout = held_part(layout_, record.ungrouped)](std::string_view call) {
    return std::make_shared<LinuxCallAccounting>(
        layout, held->record.id, std::string(call), held->record.pids,
        std::shared_ptr<const UniqueFd>(held, &held->directory));
  };
  // For a handle that outlives the backend.
  parts.lease = held;
  parts.log = options_.log;
  return std::make_shared<guest::AgentSandbox>(std::move(parts));
}

std::shared_ptr<Sandbox> LinuxBackend::Impl::attach(const SandboxKey& key, std::string_view kind,
                                                    const CallControl& control) {
  check_key(key);
  check_control(control);
  const std::string digest = identity_digest(key, kind);
  if (const auto held = held_.find(digest)) return hand_out(held, /*reused=*/true);
  const StateDirectory& found = state();
  const FileLock lock = FileLock::wait(found.locks(), lock_name(digest), FileLock::Kind::exclusive,
                                       control, "the sandbox's lock");
  if (const auto held = held_.find(digest)) return hand_out(held, /*reused=*/true);
  UniqueFd directory = open_sandbox(found.sandboxes(), digest);
  if (directory) {
    std::optional<Record> record = read_record(directory.get());
    std::optional<UniqueFd> lease = take_lease(directory.get(), control);
    if (record && lease) {
      return hold(digest,
                  {.record = std::move(*record),
                   .directory = std::move(directory),
                   .lease = std::move(*lease)},
                  /*reused=*/true);
    }
  }
  throw NoSuchSandbox(fmt::format("no sandbox of kind {} lives under this key", kind),
                      "acquire makes one");
}

std::vector<SandboxRecord> LinuxBackend::Impl::list() {
  const StateDirectory& found = state();
  held_.drop_dead();
  sweep(/*everything=*/true);
  std::vector<SandboxRecord> records;
  const std::uint64_t now = boot_time();
  for (const std::string& digest : sys::list_directory_at(found.sandboxes(), ".")) {
    const UniqueFd directory = open_sandbox(found.sandboxes(), digest);
    if (!directory || !is_alive(directory.get())) continue;
    const std::optional<Record> record = read_record(directory.get());
    if (!record) continue;
    const SandboxUse use = read_use(layout_, record->id);
    records.push_back(
        {.id = record->id,
         .backend = "linux",
         .isolation = Isolation::container,
         .key = record->key,
         .kind = record->kind,
         .age = std::chrono::seconds((now - record->created) / 1000000000),
         .idle = use.processes > 0 ? std::chrono::seconds{0} : idle_time(directory.get()),
         .processes = use.processes,
         .memory_bytes = use.memory_bytes});
  }
  return records;
}

int LinuxBackend::Impl::dispose_where(const std::function<bool(const Record&)>& wanted) noexcept {
  int ended = 0;
  try {
    const StateDirectory& found = state();
    for (const std::string& digest : sys::list_directory_at(found.sandboxes(), ".")) {
      if (end_wanted(digest, wanted)) ++ended;
    }
    held_.drop_dead();
    sweep(/*everything=*/true);
  } catch (const std::exception& error) {
    write_log(options_.log, LogLevel::warning,
              fmt::format("linux: ending sandboxes: {}", error.what()));
  }
  return ended;
}

// Whether it was wanted and lived. A failure is this sandbox's alone: the others of a conversation
// still have to end.
bool LinuxBackend::Impl::end_wanted(const std::string& digest,
                                    const std::function<bool(const Record&)>& wanted) {
  const StateDirectory& found = state();
  const UniqueFd directory = open_sandbox(found.sandboxes(), digest);
  const std::optional<Record> first = directory ? read_record(directory.get()) : std::nullopt;
  if (!first || !wanted(*first)) return false;
  try {
    const FileLock lock = FileLock::wait(found.locks(), lock_name(digest),
                                         FileLock::Kind::exclusive, {}, "the sandbox's lock");
    // Another may have taken its place while this one waited.
    const UniqueFd current = open_sandbox(found.sandboxes(), digest);
    const std::optional<Record> record = current ? read_record(current.get()) : std::nullopt;
    return record && wanted(*record) && discard(digest, record->id);
  } catch (const std::exception& error) {
    write_log(options_.log, LogLevel::error,
              fmt::format("linux: ending sandbox {} (scope '{}', thread '{}'): {}", first->id,
                          escape_for_display(first->key.scope),
                          escape_for_display(first->key.thread_id), error.what()));
    return false;
  }
}

// Under the key's lock. Returns whether it lived.
bool LinuxBackend::Impl::discard(const std::string& digest, const std::string& id) {
  const StateDirectory& found = state();
  // Until the end: given back before, the last lease would end the sandbox by itself, and it would
  // not count as ended here.
  const std::shared_ptr<const HeldSandbox> held = held_.take(digest, id);
  if (renameat(found.sandboxes(), digest.c_str(), found.trash(), id.c_str()) < 0) {
    if (errno == ENOENT) return false;
    // A directory that an earlier discard left under this id: it goes under another name.
    const std::string other = new_id();
    if (renameat(found.sandboxes(), digest.c_str(), found.trash(), other.c_str()) < 0) {
      sys::throw_errno("discarding a sandbox");
    }
    return end(found.trash(), other);
  }
  return end(found.trash(), id);
}

// Ends the sandbox in that directory and removes all that belongs to it. Returns whether it lived.
bool LinuxBackend::Impl::end(int parent, const std::string& name) {
  const UniqueFd directory = open_sandbox(parent, name);
  if (!directory) return false;
  const std::optional<Record> record = read_record(directory.get());
  const bool lived = kill_agent(directory.get());
  // The directory's name is the id wherever it was not given another.
  const std::string id = record ? record->id : name;
  bool gone = true;
  for (const std::string& group : sandbox_directories(layout_, id)) {
    if (sys::remove_control_group(group) != 0) gone = false;
  }
  // Otherwise it stays for the next sweep, which finds the groups by it.
  if (gone) remove_sandbox_directory(parent, name);
  return lived;
}

void LinuxBackend::Impl::sweep(bool everything) noexcept {
  try {
    const StateDirectory& found = state();
    for (const std::string& name : sys::list_directory_at(found.trash(), ".")) {
      end(found.trash(), name);
    }
    sweep_new();
    // Looking at each live one costs a connection; an acquire does so once a process.
    {
      const std::lock_guard lock(mutex_);
      everything |= !std::exchange(swept_, true);
    }
    if (everything) sweep_sandboxes();
  } catch (const std::exception& error) {
    write_log(options_.log, LogLevel::warning, fmt::format("linux: sweeping: {}", error.what()));
  }
}

void LinuxBackend::Impl::sweep_new() {
  const StateDirectory& found = state();
  if (sys::list_directory_at(found.fresh(), ".").empty()) return;
  // Nobody is making one while this is held: what is there was left.
  const auto lock = FileLock::attempt(found.locks(), kNewLock, FileLock::Kind::exclusive);
  if (!lock) return;
  for (const std::string& name : sys::list_directory_at(found.fresh(), ".")) {
    end(found.fresh(), name);
  }
}

void LinuxBackend::Impl::sweep_sandboxes() {
  const StateDirectory& found = state();
  for (const std::string& digest : sys::list_directory_at(found.sandboxes(), ".")) {
    const UniqueFd directory = open_sandbox(found.sandboxes(), digest);
    if (!directory || is_alive(directory.get())) continue;
    const auto lock =
        FileLock::attempt(found.locks(), lock_name(digest), FileLock::Kind::exclusive);
    if (!lock) continue;
    const UniqueFd current = open_sandbox(found.sandboxes(), digest);
    if (!current || is_alive(current.get())) continue;
    const std::optional<Record> record = read_record(current.get());
    discard(digest, record ? record->id : new_id());
  }
}

LinuxBackend::LinuxBackend(LinuxBackendOptions options)
    : impl_(std::make_shared<Impl>(std::move(options))) {}
LinuxBackend::~LinuxBackend() = default;

BackendDeclarations LinuxBackend::declarations() const { return impl_->declarations(); }

std::shared_ptr<Sandbox> LinuxBackend::acquire(const SandboxKey& key, const SandboxSpec& spec,
                                               const CallControl& control) {
  return as_provider([&] { return impl_->acquire(key, spec, control); });
}

int LinuxBackend::dispose(const SandboxKey& key) noexcept {
  return impl_->dispose_where([&](const Record& record) { return record.key == key; });
}

int LinuxBackend::dispose_scope(std::string_view scope, std::string_view thread_id) noexcept {
  return impl_->dispose_where([&](const Record& record) {
    return record.key.scope == scope && record.key.thread_id == thread_id;
  });
}

BackendProbe LinuxBackend::probe() {
  SandboxSpec spec;
  spec.kind = "probe";
  try {
    const SandboxKey key{"casemate probe", random_hex(8), "default"};
    acquire(key, spec, {});
    impl_->dispose_where([&](const Record& record) { return record.key == key; });
    return {.available = true, .reason = "", .engine = linux_backend::engine_text()};
  } catch (const SandboxError& error) {
    const std::string hint = error.hint().empty() ? "" : "; " + error.hint();
    return {.available = false,
            .reason = error.message() + hint,
            .engine = linux_backend::engine_text()};
  }
}

std::vector<SandboxRecord> LinuxBackend::list() {
  return as_provider([&] { return impl_->list(); });
}

std::shared_ptr<Sandbox> LinuxBackend::attach(const SandboxKey& key, std::string_view kind,
                                              const CallControl& control) {
  return as_provider([&] { return impl_->attach(key, kind, control); });
}

bool LinuxBackend::dispose_id(std::string_view id) noexcept {
  return impl_->dispose_where([&](const Record& record) { return record.id == id; }) > 0;
}

}  // namespace casemate
