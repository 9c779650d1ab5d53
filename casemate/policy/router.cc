#include "casemate/policy/router.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/resource_match.h"
#include "casemate/core/spec_match.h"
#include "casemate/policy/host_policy.h"

namespace casemate {
namespace {

void check_options(const std::vector<std::shared_ptr<SandboxBackend>>& backends,
                   const RouterOptions& options) {
  for (const auto& backend : backends) {
    if (!backend) throw InvalidArgument("a backend is null", "register backends that exist");
  }
  if (!is_known(options.min_isolation)) {
    throw InvalidArgument(
        fmt::format("min_isolation is an unknown isolation (number {}); the ladder is {}",
                    static_cast<int>(options.min_isolation), fmt::join(isolation_ladder(), " < ")),
        "use a rung of the ladder");
  }
  for (const Capability capability : options.denied_capabilities) {
    if (capability > Capability::attached_identity) {
      throw InvalidArgument(fmt::format("denied_capabilities has an unknown capability (number {})",
                                        static_cast<int>(capability)),
                            "use the enumerators of Capability");
    }
  }
  for (const Identity identity : options.denied_identities) {
    if (identity > Identity::user) {
      throw InvalidArgument(fmt::format("denied_identities has an unknown identity (number {})",
                                        static_cast<int>(identity)),
                            "use the enumerators of Identity");
    }
  }
  if (options.selected && options.selection != Selection::configured) {
    throw InvalidArgument(
        fmt::format("backend {} is selected and the first that can serve is asked for as well",
                    quoted(*options.selected)),
        "leave out `selected`, or use Selection::configured");
  }
}

std::string registered_names(const std::vector<std::shared_ptr<SandboxBackend>>& backends) {
  std::vector<std::string> names;
  names.reserve(backends.size());
  for (const auto& backend : backends) names.push_back(quoted(backend->declarations().name));
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::size_t index_of_selected(const std::vector<std::shared_ptr<SandboxBackend>>& backends,
                              const std::optional<std::string>& selected) {
  if (!selected) return 0;
  const auto found = std::ranges::find_if(
      backends, [&](const auto& backend) { return backend->declarations().name == *selected; });
  if (found == backends.end()) {
    throw NoSandboxBackend(fmt::format("no backend is named {}; registered: {}", quoted(*selected),
                                       registered_names(backends)),
                           "select a registered name, or register that backend");
  }
  return static_cast<std::size_t>(found - backends.begin());
}

// Throws what says best why no backend is left: the only refusal, the class that all share, or
// `NoSandboxBackend`.
[[noreturn]] void refuse_all(std::string_view lead, const std::vector<PendingRefusal>& refusals) {
  std::vector<std::string> reasons;
  std::vector<std::string> hints;
  const bool same_code = std::ranges::all_of(
      refusals, [&](const PendingRefusal& each) { return each.code == refusals.front().code; });
  for (const PendingRefusal& each : refusals) {
    reasons.push_back(same_code ? each.message : fmt::format("{}: {}", each.code, each.message));
    if (std::ranges::find(hints, each.hint) == hints.end()) hints.push_back(each.hint);
  }
  const std::string hint = fmt::format("{}", fmt::join(hints, "; or "));
  if (refusals.size() == 1) refusals.front().raise(reasons.front(), hint);
  const std::string message = fmt::format("{}: {}", lead, fmt::join(reasons, "; "));
  if (same_code) refusals.front().raise(message, hint);
  throw NoSandboxBackend(message, hint);
}

}  // namespace

struct SandboxRouter::State {
  std::vector<std::shared_ptr<SandboxBackend>> backends;
  policy::HostPolicy host;
  Selection selection = Selection::configured;
  std::size_t selected = 0;
  Log log;
  // A backend's probe said available; by position. A failed acquire forgets it.
  mutable std::vector<std::atomic<bool>> available;

  // Position of the backend that serves `spec` now. Not to be called when disabled.
  std::size_t choose(const SandboxSpec& spec) const;
  // Why this backend cannot, or nothing. A backend that cannot even say what it is counts as
  // unavailable: it must not keep the next from being asked.
  std::optional<PendingRefusal> ask(std::size_t position, const SandboxSpec& spec) const;
  std::optional<PendingRefusal> probe(std::size_t position, std::string_view name) const;
  // The backend that serves `spec` with `Capability::snapshot`. Throws as `acquire`.
  SandboxBackend& choose_for_snapshots(const SandboxKey& key, SandboxSpec spec) const;
};

std::optional<PendingRefusal> SandboxRouter::State::probe(std::size_t position,
                                                          std::string_view name) const {
  if (available[position]) return std::nullopt;
  const BackendProbe found = backends[position]->probe();
  if (!found.available) {
    return pending<SandboxUnavailable>(
        fmt::format("backend {} is not available here: {}", quoted(name),
                    escape_for_display(found.reason)),
        fmt::format("make backend {} available, or register one that works on this machine",
                    quoted(name)));
  }
  available[position] = true;
  return std::nullopt;
}

std::optional<PendingRefusal> SandboxRouter::State::ask(std::size_t position,
                                                        const SandboxSpec& spec) const {
  try {
    const BackendDeclarations declared = backends[position]->declarations();
    if (auto refused = match_declarations(spec, host.min_isolation, declared)) return refused;
    return probe(position, declared.name);
  } catch (const InvalidArgument&) {
    throw;  // about the spec, not about this backend
  } catch (const std::exception& error) {
    return pending<SandboxUnavailable>(fmt::format("backend number {} failed when it was asked: {}",
                                                   position + 1, escape_for_display(error.what())),
                                       "mend that backend, or leave it out");
  }
}

std::size_t SandboxRouter::State::choose(const SandboxSpec& spec) const {
  check_spec(spec);
  if (const auto refused = policy::match_host_policy(spec, host)) {
    refused->raise(refused->message, refused->hint);
  }
  if (selection == Selection::configured) {
    if (const auto refused =
            match_declarations(spec, host.min_isolation, backends[selected]->declarations())) {
      refused->raise(refused->message, refused->hint);
    }
    return selected;
  }
  std::vector<PendingRefusal> refusals;
  for (std::size_t position = 0; position < backends.size(); ++position) {
    std::optional<PendingRefusal> refused = ask(position, spec);
    if (!refused) return position;
    write_log(log, LogLevel::info,
              fmt::format("passed over: {}: {}", refused->code, refused->message));
    refusals.push_back(*std::move(refused));
  }
  refuse_all(fmt::format("no backend can serve kind {}", quoted(spec.kind)), refusals);
}

SandboxRouter::SandboxRouter(std::vector<std::shared_ptr<SandboxBackend>> backends,
                             RouterOptions options) {
  check_options(backends, options);
  auto state = std::make_shared<State>();
  state->available = std::vector<std::atomic<bool>>(backends.size());
  state->backends = std::move(backends);
  state->host = {.min_isolation = options.min_isolation,
                 .denied_capabilities = std::move(options.denied_capabilities),
                 .denied_identities = std::move(options.denied_identities)};
  state->selection = options.selection;
  state->log = std::move(options.log);
  state_ = state;
  if (!enabled()) return;

  std::vector<PendingRefusal> refusals;
  const auto check_floor = [&](const SandboxBackend& backend) {
    auto refused = match_host_floor(state->host.min_isolation, backend.declarations());
    if (refused) refusals.push_back(*std::move(refused));
  };
  if (state->selection == Selection::configured) {
    state->selected = index_of_selected(state->backends, options.selected);
    check_floor(*state->backends[state->selected]);
    if (!refusals.empty()) refuse_all("no registered backend is permitted", refusals);
    return;
  }
  for (const auto& backend : state->backends) check_floor(*backend);
  if (refusals.size() == state->backends.size())
    refuse_all("no registered backend is permitted", refusals);
}

bool SandboxRouter::enabled() const noexcept { return !state_->backends.empty(); }

std::shared_ptr<SandboxBackend> SandboxRouter::backend() const noexcept {
  if (!enabled() || state_->selection != Selection::configured) return nullptr;
  return state_->backends[state_->selected];
}

std::shared_ptr<SandboxBackend> SandboxRouter::backend_for(const SandboxSpec& spec) const {
  if (!enabled()) return nullptr;
  return state_->backends[state_->choose(spec)];
}

void SandboxRouter::ensure_can_serve(const SandboxSpec& spec) const {
  if (enabled()) state_->choose(spec);
}

std::shared_ptr<Sandbox> SandboxRouter::acquire(const SandboxKey& key, const SandboxSpec& spec,
                                                const CallControl& control) const {
  if (!enabled()) {
    throw NoSandboxBackend("no backend is registered, so no sandbox can be acquired",
                           "register a backend with the router");
  }
  check_key(key);
  const std::size_t position = state_->choose(spec);
  try {
    return state_->backends[position]->acquire(key, spec, control);
  } catch (const SandboxUnavailable&) {
    state_->available[position] = false;
    throw;
  }
}

SandboxBackend& SandboxRouter::State::choose_for_snapshots(const SandboxKey& key,
                                                           SandboxSpec spec) const {
  if (backends.empty()) {
    throw NoSandboxBackend("no backend is registered, so there is no sandbox to keep or restore",
                           "register a backend with the router");
  }
  check_key(key);
  spec.requires_capabilities.insert(Capability::snapshot);
  return *backends[choose(spec)];
}

SandboxSnapshot SandboxRouter::snapshot(const SandboxKey& key, const SandboxSpec& spec,
                                        const CallControl& control) const {
  return state_->choose_for_snapshots(key, spec).snapshot(key, spec.kind, control);
}

std::shared_ptr<Sandbox> SandboxRouter::restore(const SandboxKey& key, const SandboxSpec& spec,
                                                std::string_view snapshot_id,
                                                const CallControl& control) const {
  return state_->choose_for_snapshots(key, spec).restore(key, spec, snapshot_id, control);
}

std::shared_ptr<Sandbox> SandboxRouter::fork(const SandboxKey& from, const SandboxKey& to,
                                             const SandboxSpec& spec,
                                             const CallControl& control) const {
  return state_->choose_for_snapshots(from, spec).fork(from, to, spec, control);
}

bool SandboxRouter::dispose_snapshot(std::string_view id) const noexcept {
  return std::ranges::any_of(state_->backends,
                             [&](const auto& backend) { return backend->dispose_snapshot(id); });
}

std::set<Limit> SandboxRouter::limits_not_held(const SandboxSpec& spec) const {
  if (!enabled()) return {};
  return casemate::limits_not_held(spec.resources, backend_for(spec)->declarations());
}

int SandboxRouter::dispose(const SandboxKey& key) const noexcept {
  int disposed = 0;
  for (const auto& backend : state_->backends) disposed += backend->dispose(key);
  return disposed;
}

int SandboxRouter::dispose_scope(std::string_view scope,
                                 std::string_view thread_id) const noexcept {
  int disposed = 0;
  for (const auto& backend : state_->backends) {
    disposed += backend->dispose_scope(scope, thread_id);
  }
  return disposed;
}

bool SandboxRouter::dispose_id(std::string_view id) const noexcept {
  return std::ranges::any_of(state_->backends,
                             [&](const auto& backend) { return backend->dispose_id(id); });
}

SandboxScope SandboxRouter::scope(std::string scope, std::string thread_id) const {
  return SandboxScope([router = *this, scope = std::move(scope), thread_id = std::move(thread_id)] {
    return router.dispose_scope(scope, thread_id);
  });
}

}  // namespace casemate
