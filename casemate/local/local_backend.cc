#include "casemate/local/local_backend.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/protocol.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/lease.h"
#include "casemate/local/local_sandboxes.h"
#include "casemate/local/spec_check.h"
#include "casemate/sys/file.h"

namespace casemate::local {

using sys::UniqueFd;

namespace {

constexpr char kHostImage[] = "host";

// What the kernel refuses in the state directory or the control groups is the provider's failure.
template <typename Act>
auto as_provider(const Engine& engine, Act&& act) {
  try {
    return act();
  } catch (const std::system_error& error) {
    const std::string hint = provider_hint(error);
    const SandboxUnavailable refusal(fmt::format("the {} backend: {}", engine.name(), error.what()),
                                     hint);
    // No room, or none to write to: where the state is.
    const int value = error.code().value();
    if (value == ENOSPC || value == EDQUOT || value == EROFS) {
      throw Carrying<SandboxUnavailable, StateRemedy>(refusal, {{.hint = hint, .command = ""}});
    }
    throw refusal;
  }
}

void check_imports(const std::vector<std::string>& imports) {
  if (imports.size() > guest::kMaxImports) {
    throw InvalidArgument(
        fmt::format("WarmPool::imports is refused: it has {} names, and {} are "
                    "accepted",
                    imports.size(), guest::kMaxImports));
  }
  for (const std::string& name : imports) {
    if (guest::is_import_name(name)) continue;
    throw InvalidArgument(fmt::format("WarmPool::imports is refused: \"{}\" is no name of a module",
                                      escape_for_display(name)),
                          "give names as an import statement has them, \"os.path\"");
  }
}

// Of what the keeper says it is (guest/agent/identity.h).
std::string why_one_id(std::string_view identity) {
  constexpr std::string_view kBegin = "one user id (";
  if (!identity.starts_with(kBegin)) return "";
  identity.remove_prefix(kBegin.size());
  const std::size_t more = identity.find("); ");
  return std::string(identity.substr(0, more == identity.npos ? identity.size() - 1 : more));
}

// 0 where it is not known, or was written by a clock that is ahead: that of another time namespace.
std::chrono::nanoseconds age_of(const Record& record, std::uint64_t now) {
  if (record.created == 0 || record.created > now) return {};
  return std::chrono::nanoseconds(now - record.created);
}

}  // namespace

LocalSandboxes::LocalSandboxes(std::shared_ptr<Engine> engine, LocalOptions options)
    : engine_(std::move(engine)),
      name_(engine_->name()),
      options_(std::move(options)),
      images_(options_.images),
      keeper_([engine = engine_] { return engine->keeper_arguments(); },
              engine_->starts_side_by_side() ? KeeperClient::Starts::side_by_side
                                             : KeeperClient::Starts::one_at_a_time,
              engine_->keeper_silence()) {
  if (!options_.warm_pool) return;
  check_spec(options_.warm_pool->spec);
  check_imports(options_.warm_pool->imports);
  stock_ = std::make_unique<WarmStock>(
      *options_.warm_pool,
      WarmStock::Makers{[this](const auto& stop) { find_pool_fingerprint(stop); },
                        [this](const auto& stop) { return make_ready(stop); },
                        [this](const auto& sandbox) { return hold_program(sandbox); }},
      [this](LogLevel level, std::string_view text) { log(level, text); });
  const SandboxSpec& pooled = options_.warm_pool->spec;
  if (!pooled.image_id && pooled.image.value_or(kHostImage) == kHostImage) {
    // Nothing to be brought here: known before the first acquire.
    find_pool_fingerprint({});
  }
}

void LocalSandboxes::log(LogLevel level, std::string_view text) const {
  write_log(options_.log, level, fmt::format("{}: {}", name_, text));
}

BackendDeclarations LocalSandboxes::declarations() const {
  BackendDeclarations declared = engine_->declare(groups().layout);
  for (const auto& [limit, why] : groups().missing) {
    if (!declared.enforceable_limits.contains(limit)) declared.why_not_enforceable[limit] = why;
  }
  return declared;
}

// Not before anybody asks: one of several backends is used as a rule.
const DetectedGroups& LocalSandboxes::groups() const {
  std::call_once(groups_known_, [this] {
    groups_ = options_.control_groups == ControlGroups::none ? no_groups() : detect_groups();
  });
  return groups_;
}

std::shared_ptr<const StateDirectory> LocalSandboxes::state() {
  const std::lock_guard lock(mutex_);
  if (!state_ || !state_->is_there()) {
    state_ = std::make_shared<const StateDirectory>(options_.state_dir);
  }
  return state_;
}

bool LocalSandboxes::has_state() const noexcept {
  struct stat status{};
  return lstat(options_.state_dir.c_str(), &status) == 0 || errno != ENOENT;
}

std::vector<SandboxRecord> LocalSandboxes::list() {
  if (!has_state()) return {};
  const std::shared_ptr<const StateDirectory> kept = state();
  const StateDirectory& found = *kept;
  held_.drop_dead();
  sweep(/*everything=*/true);
  std::vector<SandboxRecord> records;
  // One moment for all, so that ages tell which is older, and nothing is idle longer than it is.
  const std::uint64_t now = boot_time();
  for (const std::string& digest : sys::list_directory_at(found.sandboxes(), ".")) {
    const UniqueFd directory = open_sandbox(found.sandboxes(), digest);
    if (!directory) continue;
    // First: one that ends in this moment has no record any more, but then it is not alive either.
    const Record record = read_record(directory.get(), digest);
    if (!is_alive(directory.get())) continue;
    const SandboxUse use = read_use(groups_of(record), record.id);
    records.push_back({.id = record.id,
                       .backend = name_,
                       .isolation = record.isolation,
                       .key = record.key,
                       .kind = record.kind,
                       .age = age_of(record, now),
                       .idle = is_busy(directory.get()) ? std::chrono::nanoseconds{0}
                                                        : idle_time(directory.get(), now),
                       .processes = use.processes,
                       .memory_bytes = use.memory_bytes,
                       .labels = record.labels});
  }
  return records;
}

LocalBackend::LocalBackend(std::shared_ptr<Engine> engine, LocalOptions options)
    : sandboxes_(std::make_shared<LocalSandboxes>(std::move(engine), std::move(options))) {}
LocalBackend::~LocalBackend() = default;

BackendDeclarations LocalBackend::declarations() const { return sandboxes_->declarations(); }

std::shared_ptr<Sandbox> LocalBackend::acquire(const SandboxKey& key, const SandboxSpec& spec,
                                               const CallControl& control) {
  return as_provider(sandboxes_->engine(), [&] { return sandboxes_->acquire(key, spec, control); });
}

// Snapshots last: one that is being taken of a sandbox has its file before that can be ended.
int LocalBackend::dispose(const SandboxKey& key) noexcept {
  const auto wanted = [&](const Record& record) { return record.key == key; };
  const int ended = sandboxes_->dispose_of(key.scope, key.thread_id, wanted);
  sandboxes_->dispose_snapshots_where(wanted);
  return ended;
}

int LocalBackend::dispose_scope(std::string_view scope, std::string_view thread_id) noexcept {
  // No key has an empty part: that is a record which cannot be read.
  const auto wanted = [&](const Record& record) {
    return !scope.empty() && record.key.scope == scope && record.key.thread_id == thread_id;
  };
  const int ended = sandboxes_->dispose_of(scope, thread_id, wanted);
  sandboxes_->dispose_snapshots_where(wanted);
  return ended;
}

BackendProbe LocalBackend::probe() {
  SandboxSpec spec;
  spec.kind = "probe";
  const std::string image = sandboxes_->engine().probe_image();
  if (!image.empty()) spec.image = image;
  try {
    const SandboxKey key{"casemate probe", random_hex(8), "default"};
    acquire(key, spec, {});
    sandboxes_->dispose_of(key.scope, key.thread_id,
                           [&](const Record& record) { return record.key == key; });
    const std::string identity = sandboxes_->identity();
    return {.available = true,
            .reason = "",
            .engine = fmt::format("{}, {}", sandboxes_->engine().text(), identity),
            .one_user_id = why_one_id(identity)};
  } catch (const SandboxError& error) {
    const std::string hint = error.hint().empty() ? "" : "; " + error.hint();
    const auto* remedy = dynamic_cast<const Remedy*>(&error);
    return {.available = false,
            .reason = error.message() + hint,
            .fix = remedy == nullptr ? "" : remedy->command,
            .engine = sandboxes_->engine().text()};
  }
}

std::vector<SandboxRecord> LocalBackend::list() {
  return as_provider(sandboxes_->engine(), [&] { return sandboxes_->list(); });
}

std::shared_ptr<Sandbox> LocalBackend::attach(const SandboxKey& key, std::string_view kind,
                                              const CallControl& control) {
  return as_provider(sandboxes_->engine(), [&] { return sandboxes_->attach(key, kind, control); });
}

bool LocalBackend::dispose_id(std::string_view id) noexcept { return sandboxes_->dispose_id(id); }

SandboxSnapshot LocalBackend::snapshot(const SandboxKey& key, std::string_view kind,
                                       const CallControl& control) {
  if (!declarations().capabilities.contains(Capability::snapshot)) {
    return SandboxBackend::snapshot(key, kind, control);
  }
  return as_provider(sandboxes_->engine(),
                     [&] { return sandboxes_->snapshot(key, kind, control); });
}

std::shared_ptr<Sandbox> LocalBackend::restore(const SandboxKey& key, const SandboxSpec& spec,
                                               std::string_view snapshot_id,
                                               const CallControl& control) {
  if (!declarations().capabilities.contains(Capability::snapshot)) {
    return SandboxBackend::restore(key, spec, snapshot_id, control);
  }
  return as_provider(sandboxes_->engine(),
                     [&] { return sandboxes_->restore(key, spec, snapshot_id, control); });
}

bool LocalBackend::dispose_snapshot(std::string_view id) noexcept {
  return sandboxes_->dispose_snapshot(id);
}

bool LocalBackend::wait_until_warm(const CallControl& control) {
  return sandboxes_->wait_until_warm(control);
}

}  // namespace casemate::local
