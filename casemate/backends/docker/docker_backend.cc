#include "casemate/backends/docker/docker_backend.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <utility>

#include "casemate/backends/docker/docker_backend_impl.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/backends/docker/spec_check.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/state_directory.h"

namespace casemate {

using namespace docker;

namespace {

// Of a question that nobody asked for.
constexpr std::chrono::seconds kUnaskedPatience{2};
// Of one that somebody did: a busy engine takes its time over what it is.
constexpr std::chrono::seconds kAskedPatience{10};

CallControl within(std::chrono::seconds patience) {
  CallControl control;
  control.deadline = std::chrono::steady_clock::now() + patience;
  return control;
}

bool is_socket(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

EngineAddress address_of(const DockerBackendOptions& options) {
  if (!options.host.empty()) {
    try {
      return parse_engine_address(options.host);
    } catch (const InvalidArgument& refused) {
      return {
          .kind = EngineAddress::Kind::unusable, .text = options.host, .why = refused.message()};
    }
  }
  std::vector<std::string> paths{"/run/docker.sock", "/var/run/docker.sock",
                                 "/run/podman/podman.sock"};
  if (const char* own = secure_getenv("XDG_RUNTIME_DIR"); own != nullptr && own[0] == '/') {
    paths.push_back(std::string(own) + "/docker.sock");
    paths.push_back(std::string(own) + "/podman/podman.sock");
  }
  for (const std::string& path : paths) {
    if (is_socket(path)) return parse_engine_address(path);
  }
  return parse_engine_address(paths.front());
}

std::optional<EngineTls> tls_of(const DockerBackendOptions& options) {
  if (options.tls_directory.empty()) return std::nullopt;
  const std::string own = options.tls_directory + "/cert.pem";
  const bool has_own = access(own.c_str(), F_OK) == 0;
  return EngineTls{.ca_file = options.tls_directory + "/ca.pem",
                   .certificate_file = has_own ? own : "",
                   .key_file = has_own ? options.tls_directory + "/key.pem" : ""};
}

Engine make_engine(const DockerBackendOptions& options) {
  const std::optional<EngineTls> tls = tls_of(options);
  EngineAddress address = address_of(options);
  try {
    return Engine(address, tls ? &*tls : nullptr, options.log);
  } catch (const InvalidArgument& refused) {
    address.kind = EngineAddress::Kind::unusable;
    address.why = refused.message();
    return Engine(std::move(address), nullptr, options.log);
  }
}

// What the host's own parts refuse is the provider's failure.
template <typename Act>
auto as_provider(const Log& log, std::string_view what, const Act& act) {
  try {
    return act();
  } catch (const EngineRefused& refused) {
    throw_refused(log, what, refused);
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(fmt::format("the docker backend: {}", error.what()));
  }
}

using Moment = std::chrono::system_clock::time_point;

std::chrono::nanoseconds between(Moment then, Moment now) {
  return std::max<std::chrono::nanoseconds>(now - then, std::chrono::nanoseconds{0});
}

std::chrono::nanoseconds idle_time(int directory, Moment now) {
  struct stat status{};
  if (fstatat(directory, kBusyLockName, &status, AT_SYMLINK_NOFOLLOW) < 0) return {};
  const Moment used = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec) +
                      std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  return between(used, now);
}

}  // namespace

void docker::throw_refused(const Log& log, std::string_view what, const EngineRefused& refused) {
  write_log(
      log, LogLevel::error,
      fmt::format("docker: {}: {} {}", what, refused.status(), escape_for_display(refused.what())));
  throw SandboxUnavailable(fmt::format("the engine refused ({}): {}", refused.status(), what),
                           "its own words are in the log");
}

DockerBackend::Impl::Impl(DockerBackendOptions options)
    : options_(std::move(options)), engine_(make_engine(options_)) {
  if (options_.state_dir.empty()) {
    options_.state_dir =
        local::default_state_directory(geteuid(), secure_getenv("XDG_RUNTIME_DIR"));
  }
}

bool DockerBackend::Impl::streams() const {
  return engine_.address().kind == EngineAddress::Kind::tcp || !options_.runtime.empty();
}

Isolation DockerBackend::Impl::isolation() noexcept {
  return has_own_kernel() ? Isolation::hardened_container : Isolation::container;
}

const Places& DockerBackend::Impl::places() {
  const std::lock_guard lock(mutex_);
  if (!places_) places_ = std::make_unique<const Places>(options_.state_dir);
  return *places_;
}

BackendDeclarations DockerBackend::Impl::declarations() {
  if (auto known = engine_.known_facts()) return declare(known, isolation());
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(asked_, true)) return declare(std::nullopt, Isolation::container);
  }
  try {
    const EngineFacts facts = engine_.facts(within(kUnaskedPatience));
    return declare(facts, isolation());
  } catch (const SandboxError&) {
    // Why is said to whoever wants a sandbox.
    return declare(std::nullopt, Isolation::container);
  }
}

BackendProbe DockerBackend::Impl::probe() {
  try {
    const EngineFacts facts = engine_.facts(within(kAskedPatience));
    if (!options_.runtime.empty() && !facts.runtimes.contains(options_.runtime)) {
      throw SandboxUnavailable(
          fmt::format("the engine has no runtime {}", escape_for_display(options_.runtime)),
          "add it to the engine's configuration, or leave `runtime` out");
    }
    places();
    return {.available = true,
            .reason = "",
            .engine = fmt::format("{}, API {}, at {}", facts.name, facts.version,
                                  escape_for_display(engine_.address().text))};
  } catch (const SandboxError& error) {
    const std::string hint = error.hint().empty() ? "" : "; " + error.hint();
    // Of one that cannot even be asked there is nothing to say.
    const auto known = engine_.known_facts();
    const auto* remedy = dynamic_cast<const local::Remedy*>(&error);
    return {.available = false,
            .reason = error.message() + hint,
            .fix = remedy == nullptr ? "" : remedy->command,
            .engine = known ? known->name : std::string()};
  }
}

std::vector<SandboxRecord> DockerBackend::Impl::list() {
  held_.drop_dead();
  std::vector<SandboxRecord> records;
  try {
    engine_.facts(within(kAskedPatience));
  } catch (const SandboxTimeout& error) {
    write_log(options_.log, LogLevel::warning,
              fmt::format("docker: what the engine has is not listed: {}", error.message()));
    return records;
  } catch (const SandboxError& error) {
    // Nobody is there who could have any.
    write_log(options_.log, LogLevel::info, fmt::format("docker: {}", error.message()));
    return records;
  }
  sweep({});
  const std::string label = fmt::format("{}={}", kOwnerLabel, kOwner);
  // One moment for all, so that ages tell which is older, and nothing is idle longer than it is.
  const Moment now = std::chrono::system_clock::now();
  for (const Container& container : engine_.list({label}, {})) {
    const auto text = container.labels.find(std::string(kRecordLabel));
    if (!container.is_live() || text == container.labels.end()) continue;
    const auto record = decode_record(text->second);
    if (!record) continue;
    const sys::UniqueFd directory = places().open(place_directory(container.name, record->place));
    const Engine::Usage usage = engine_.usage(container.id, {});
    records.push_back(
        {.id = sandbox_id(container.id),
         .backend = std::string(kDockerBackendName),
         .isolation = isolation(),
         .key = record->key,
         .kind = record->kind,
         .age = between(
             std::chrono::system_clock::from_time_t(static_cast<std::time_t>(record->created)),
             now),
         .idle = !directory || local::is_busy(directory.get()) ? std::chrono::nanoseconds{0}
                                                               : idle_time(directory.get(), now),
         .processes = usage.processes,
         .memory_bytes = usage.memory_bytes,
         .labels = record->labels});
  }
  return records;
}

DockerBackend::DockerBackend(DockerBackendOptions options)
    : impl_(std::make_shared<Impl>(std::move(options))) {}
DockerBackend::~DockerBackend() = default;

BackendDeclarations DockerBackend::declarations() const { return impl_->declarations(); }

std::shared_ptr<Sandbox> DockerBackend::acquire(const SandboxKey& key, const SandboxSpec& spec,
                                                const CallControl& control) {
  return as_provider(impl_->log(), "a sandbox was asked for",
                     [&] { return impl_->acquire(key, spec, control); });
}

int DockerBackend::dispose(const SandboxKey& key) noexcept {
  if (key.scope.empty() || key.thread_id.empty() || key.agent_dir.empty()) return 0;
  return impl_->dispose_labelled({{std::string(kScopeLabel), label_value(key.scope)},
                                  {std::string(kThreadLabel), label_value(key.thread_id)},
                                  {std::string(kAgentLabel), label_value(key.agent_dir)}});
}

int DockerBackend::dispose_scope(std::string_view scope, std::string_view thread_id) noexcept {
  if (scope.empty() || thread_id.empty()) return 0;
  return impl_->dispose_labelled({{std::string(kScopeLabel), label_value(scope)},
                                  {std::string(kThreadLabel), label_value(thread_id)}});
}

bool DockerBackend::dispose_id(std::string_view id) noexcept { return impl_->dispose_id(id); }

BackendProbe DockerBackend::probe() { return impl_->probe(); }

std::vector<SandboxRecord> DockerBackend::list() {
  return as_provider(impl_->log(), "listing sandboxes", [&] { return impl_->list(); });
}

std::shared_ptr<Sandbox> DockerBackend::attach(const SandboxKey& key, std::string_view kind,
                                               const CallControl& control) {
  return as_provider(impl_->log(), "attaching to a sandbox",
                     [&] { return impl_->attach(key, kind, control); });
}

}  // namespace casemate
