#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "casemate/backends/docker/docker_backend_impl.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/backends/docker/spec_check.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/connection.h"
#include "casemate/images/reference.h"
#include "casemate/local/lease.h"
#include "casemate/local/state_directory.h"
#include "casemate/sys/file.h"

namespace casemate {

using namespace docker;
using sys::UniqueFd;

namespace {

// Somebody makes one and somebody else ends it, again and again: not this time.
constexpr int kTries = 8;

// Ours: what an image says of them is true of its own users.
constexpr const char* kOwnVariables[] = {"HOME", "USER", "LOGNAME", "TMPDIR", "HOSTNAME"};
// As at the end of the path that programs have without an image's (guest/agent/program_image.cc).
constexpr char kOwnPrograms[] = ":/casemate/bin";

void check_control(const CallControl& control) {
  if (control.stop.stop_requested()) throw SandboxCancelled("cancelled before a sandbox was had");
  if (control.deadline && std::chrono::steady_clock::now() >= *control.deadline) {
    throw SandboxTimeout("the deadline came before a sandbox was had");
  }
}

// Of one call: marks the sandbox as busy, so that nobody replaces it meanwhile.
class Accounting final : public guest::CallAccounting {
 public:
  explicit Accounting(std::shared_ptr<const HeldContainer> held)
      : held_(std::move(held)), busy_(take()) {}
  ~Accounting() override {
    // When it was in use last.
    if (owner_.is_current()) {
      utimensat(held_->directory.get(), kBusyLockName, nullptr, AT_SYMLINK_NOFOLLOW);
    }
  }

  sys::UniqueFd mark_busy() override {
    UniqueFd file(openat(held_->directory.get(), kBusyLockName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (file && flock(file.get(), LOCK_SH | LOCK_NB) == 0) return file;
    refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw SandboxUnavailable("the sandbox was ended or replaced by another process",
                             "acquire it again");
  }
  local::FileLock take() const {
    try {
      auto lock = local::FileLock::attempt(held_->directory.get(), kBusyLockName,
                                           local::FileLock::Kind::shared);
      if (lock) return std::move(*lock);
    } catch (const std::system_error&) {
      // The directory is gone: it was disposed.
    }
    refuse();
  }

  std::shared_ptr<const HeldContainer> held_;
  local::FileLock busy_;
  sys::OwnerProcess owner_;
};

}  // namespace

std::shared_ptr<Sandbox> DockerBackend::Impl::acquire(const SandboxKey& key,
                                                      const SandboxSpec& spec,
                                                      const CallControl& control) {
  check_key(key);
  check_spec(spec);
  check_control(control);
  const EngineFacts facts = engine_.facts(control);
  docker::check_servable(spec, declarations(), facts);
  Wanted wanted{.key = key,
                .spec = spec,
                .digest = identity_digest(key, spec.kind),
                .name = container_name(key, spec.kind),
                .fingerprint = {},
                .image = choose_image(spec, control)};
  SandboxSpec meant = spec;
  meant.image_id.reset();
  meant.image = wanted.image.id;
  wanted.fingerprint = spec_fingerprint(meant, guest::guest_build_id() + ' ' + options_.runtime +
                                                   (has_own_kernel() ? " own kernel" : ""));
  // Held by this process, so nobody else had reason to make or replace it.
  const auto find_held = [&] {
    auto held = held_.find(wanted.digest);
    if (!held || held->record.fingerprint != wanted.fingerprint) return decltype(held)();
    return change_keep_idle(*held, spec.keep_idle) ? held : nullptr;
  };
  if (const auto held = find_held()) return hand_out(held, /*reused=*/true);
  held_.drop_dead();
  if (!swept_) {
    sweep(control);
    // One that was cut short is made up for.
    check_control(control);
    swept_ = true;
  }
  const local::FileLock lock = places().lock(wanted.digest, control);
  // Another thread may have made it meanwhile.
  if (const auto held = find_held()) return hand_out(held, /*reused=*/true);
  for (int tries = 0; tries < kTries; ++tries) {
    check_control(control);
    if (const auto held = adopt(wanted, control)) {
      held_.put(wanted.digest, held);
      return hand_out(held, /*reused=*/true);
    }
    if (const auto held = create(wanted, control)) {
      held_.put(wanted.digest, held);
      return hand_out(held, /*reused=*/false);
    }
  }
  throw SandboxUnavailable(
      fmt::format("the name {} is taken by others again and again", wanted.name),
      "two users of one engine cannot have sandboxes of the same key");
}

std::shared_ptr<const HeldContainer> DockerBackend::Impl::adopt(const Wanted& wanted,
                                                                const CallControl& control) {
  const auto found = engine_.inspect(wanted.name, control);
  if (!found) return nullptr;
  if (!is_of(found->labels, wanted.key, wanted.spec.kind)) {
    throw SandboxUnavailable(
        fmt::format("the engine has a container {} that is not this key's", wanted.name),
        "it was not touched; remove it, or use another thread in the key");
  }
  const auto text = found->labels.find(std::string(kRecordLabel));
  std::optional<Record> record;
  if (text != found->labels.end()) record = decode_record(text->second);
  UniqueFd directory =
      record ? places().open(place_directory(wanted.name, record->place)) : UniqueFd();
  // Without a readable record, any place of this key shows that it was made from here.
  const bool is_ours = record ? record->home == places().home() : has_place(wanted.digest);
  if (!is_ours) {
    // Ended between the two questions, place and all.
    if (!engine_.inspect(found->id, control)) return nullptr;
    throw SandboxUnavailable(
        fmt::format("the sandbox {} of this key belongs to another user of the engine",
                    sandbox_id(found->id)),
        "share a state directory (state_dir), or use another scope in the key");
  }
  if (!found->is_live() || !directory) {
    // Under the lock nobody makes one: what did not begin, is over or has no place was left.
    end(*found, control);
    return nullptr;
  }
  const bool is_as_wanted = record->fingerprint == wanted.fingerprint;
  auto held = std::make_shared<HeldContainer>();
  if (!streams()) {
    // Without a wish: if this spec is refused, what the others wished still counts.
    held->lease = local::take_lease(directory.get(), std::nullopt, control).value_or(UniqueFd());
  } else if (is_as_wanted) {
    held->stream = open_stream(found->id, wanted.spec.keep_idle, control);
    held->keep_idle = wanted.spec.keep_idle.count();
  }
  if (!held->lease && !held->stream && (is_as_wanted || !streams())) {
    end(*found, control);
    return nullptr;
  }
  if (is_as_wanted) {
    held->record = std::move(*record);
    held->id = found->id;
    held->directory = std::move(directory);
    held->process = found->process;
    change_keep_idle(*held, wanted.spec.keep_idle);
    return held;
  }
  const auto idle =
      local::FileLock::attempt(directory.get(), kBusyLockName, local::FileLock::Kind::exclusive);
  if (!idle) {
    throw SandboxBusy(
        fmt::format("the sandbox {} of kind {} runs a call and was made with another image, "
                    "limits, egress or build",
                    sandbox_id(found->id), wanted.spec.kind),
        "wait for the call to end, or use another thread in the key");
  }
  // Under the lock: a call that opens in this moment is refused instead of killed.
  end(*found, control);
  return nullptr;
}

bool DockerBackend::Impl::has_place(const std::string& digest) {
  return std::ranges::any_of(places().names(),
                             [&](const std::string& each) { return each.starts_with(digest); });
}

std::shared_ptr<Sandbox> DockerBackend::Impl::attach(const SandboxKey& key, std::string_view kind,
                                                     const CallControl& control) {
  check_key(key);
  check_control(control);
  const std::string digest = identity_digest(key, kind);
  if (const auto held = held_.find(digest)) return hand_out(held, /*reused=*/true);
  const local::FileLock lock = places().lock(digest, control);
  const std::string name = container_name(key, kind);
  // Without a place there is none that could be used; nor need an engine be there to say so.
  const auto found = has_place(digest) ? engine_.inspect(name, control) : std::nullopt;
  if (found && found->is_live() && is_of(found->labels, key, kind)) {
    const auto text = found->labels.find(std::string(kRecordLabel));
    std::optional<Record> record;
    if (text != found->labels.end()) record = decode_record(text->second);
    UniqueFd directory = record ? places().open(place_directory(name, record->place)) : UniqueFd();
    auto held = std::make_shared<HeldContainer>();
    if (directory && record->fingerprint.empty()) {
      guest::throw_another_build(sandbox_id(found->id));
    }
    if (directory && streams()) {
      held->stream = open_stream(found->id, std::nullopt, control);
    } else if (directory) {
      held->lease = local::take_lease(directory.get(), std::nullopt, control).value_or(UniqueFd());
    }
    if (held->lease || held->stream) {
      held->record = std::move(*record);
      held->id = found->id;
      held->directory = std::move(directory);
      held->process = found->process;
      held_.put(digest, held);
      return hand_out(held, /*reused=*/true);
    }
  }
  throw NoSuchSandbox(fmt::format("no sandbox of kind {} lives under this key", kind),
                      "acquire makes one");
}

std::shared_ptr<Sandbox> DockerBackend::Impl::hand_out(
    const std::shared_ptr<const HeldContainer>& held, bool reused) {
  const Record& record = held->record;
  guest::AgentSandboxParts parts;
  parts.info = {.id = sandbox_id(held->id),
                .backend = std::string(kDockerBackendName),
                .isolation = isolation(),
                .reused = reused,
                .image = record.image,
                .egress = Egress::closed,
                .work_dir = record.work_dir,
                .limits_not_held = record.limits_not_held};
  parts.connect = [held](const CallControl& connecting) {
    if (held->stream) return held->stream->connect(connecting);
    std::optional<UniqueFd> connection;
    try {
      connection = local::connect_to(held->directory.get(), guest::kAgentSocketName);
    } catch (const std::system_error& error) {
      throw SandboxUnavailable(fmt::format("the sandbox cannot be reached: {}", error.what()));
    }
    if (!connection) throw SandboxUnavailable("the sandbox has ended", "acquire it again");
    return std::move(*connection);
  };
  parts.account = [held](std::string_view, guest::CallUse, const CallControl&) {
    return std::make_shared<Accounting>(held);
  };
  parts.environment = record.environment;
  // Of another machine, the number is nobody's here.
  if (held->process > 0 && engine_.address().kind == EngineAddress::Kind::unix_socket) {
    parts.first_process = [held]() -> std::optional<int> {
      if (!held->holds()) return std::nullopt;
      return held->process;
    };
  }
  // For a handle that outlives the backend.
  parts.lease = held;
  parts.log = options_.log;
  return std::make_shared<guest::AgentSandbox>(std::move(parts));
}

// -- Images --------------------------------------------------------------------------------------

ImageFacts DockerBackend::Impl::choose_image(const SandboxSpec& spec, const CallControl& control) {
  const std::string named = spec.image_id.value_or(spec.image.value_or(options_.image));
  if (named.empty()) {
    throw SandboxImageNotSupported(
        "the docker backend has no image of its own, and none was named",
        "name one, for example python:3-slim, or set DockerBackendOptions::image");
  }
  const images::ImageReference reference = images::parse_image_reference(named);
  if (spec.image_id && reference.id.empty()) {
    throw SandboxImageNotSupported(
        fmt::format("the docker backend knows images by their digest, not by the id \"{}\"",
                    escape_for_display(named)),
        "give an id of `docker images --no-trunc`, sha256: and 64 hex digits");
  }
  ImageFacts image = [&] {
    if (reference.id.empty()) return bring_image(reference.text, reference.digest, control);
    auto found = engine_.image(reference.id, control);
    if (found) return std::move(*found);
    throw SandboxImageInvalid(fmt::format("the engine has no image {}", reference.id),
                              "pull it, or name it by a reference");
  }();
  if (!options_.platform.empty() && image.platform != options_.platform &&
      !options_.platform.starts_with(image.platform + "/")) {
    throw SandboxImageInvalid(
        fmt::format("the image {} is of the platform {}, not {}", escape_for_display(named),
                    escape_for_display(image.platform), escape_for_display(options_.platform)),
        "name an image of that platform");
  }
  for (const char* name : kOwnVariables) image.environment.erase(name);
  const auto path = image.environment.find("PATH");
  if (path != image.environment.end()) path->second += kOwnPrograms;
  return image;
}

ImageFacts DockerBackend::Impl::bring_image(const std::string& reference, const std::string& digest,
                                            const CallControl& control) {
  // By a digest it is the one of that digest or none; by a tag, what the engine has now.
  if (auto found = engine_.image(reference, control)) return std::move(*found);
  const std::string shown = escape_for_display(reference);
  if (options_.pull == DockerPull::never) {
    throw SandboxImageInvalid(
        fmt::format("the engine has no image {}, and none may be pulled here", shown),
        "pull it by hand, or allow it (DockerBackendOptions::pull)");
  }
  try {
    engine_.pull(reference, options_.platform, options_.progress, options_.pull_patience, control);
  } catch (const EngineRefused& refused) {
    write_log(options_.log, LogLevel::error,
              fmt::format("docker: pulling {}: {}", shown, escape_for_display(refused.what())));
    throw SandboxImageInvalid(fmt::format("the engine could not pull the image {}", shown),
                              "its reason is in the log; is the name right, is there a "
                              "network, may it be had without a login?");
  }
  auto pulled = engine_.image(reference, control);
  const bool is_it = pulled && (digest.empty() || pulled->digests.contains(digest));
  if (is_it) return std::move(*pulled);
  throw SandboxImageInvalid(
      fmt::format("the engine pulled {} and has another image or none under that name", shown));
}

}  // namespace casemate
