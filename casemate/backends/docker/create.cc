#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <stop_token>
#include <system_error>
#include <utility>

#include "casemate/backends/docker/container_body.h"
#include "casemate/backends/docker/docker_backend_impl.h"
#include "casemate/backends/docker/guest_volume.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/backends/docker/own_kernel.h"
#include "casemate/backends/docker/spec_check.h"
#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/resource_match.h"
#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/container_agent.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/lease.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate {

using namespace docker;
using sys::UniqueFd;

namespace {

using Clock = std::chrono::steady_clock;

// From the engine's word that it started to the agent's that it is ready.
constexpr std::chrono::seconds kGreetPatience{30};
// Of a container whose host listens for it.
constexpr std::chrono::seconds kShared{0};

std::uint64_t now_in_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

// Until the descriptor is readable: true; or the container has ended: false. Throws by `control`
// and for silence.
bool wait_for(int descriptor, EngineClient::Pending& ended, const CallControl& control) {
  const UniqueFd stopped = sys::make_event();
  const std::stop_callback callback(control.stop, [&] { sys::raise_event(stopped.get()); });
  auto until = Clock::now() + kGreetPatience;
  if (control.deadline) until = std::min(until, *control.deadline);
  while (true) {
    std::array<pollfd, 3> entries{pollfd{descriptor, POLLIN, 0},
                                  pollfd{ended.descriptor(), POLLIN, 0},
                                  pollfd{stopped.get(), POLLIN, 0}};
    const int ready = sys::poll_until(entries, until);
    if (entries[0].revents != 0) return true;
    if (entries[1].revents != 0 && ended.has_answer()) return false;
    if (entries[2].revents != 0) throw SandboxCancelled("cancelled while a container started");
    if (ready == 0) {
      throw SandboxTimeout("a container that was started did not say that it is ready");
    }
  }
}

}  // namespace

std::shared_ptr<const HeldContainer> DockerBackend::Impl::create(const Wanted& wanted,
                                                                 const CallControl& control) {
  const SandboxSpec& spec = wanted.spec;
  const Record record{.key = wanted.key,
                      .kind = spec.kind,
                      .fingerprint = wanted.fingerprint,
                      .image = spec.image_id.value_or(spec.image.value_or(options_.image)),
                      .environment = wanted.image.environment,
                      .work_dir = spec.work_dir,
                      .labels = spec.labels,
                      .limits_not_held = limits_not_held(spec.resources, declarations()),
                      .created = now_in_seconds(),
                      .place = random_hex(8),
                      .home = places().home()};
  // Of what was ended: under the lock nobody else makes one.
  clear_places(wanted.digest);
  auto labels = labels_of(wanted.key, spec, wanted.fingerprint);
  labels[std::string(kRecordLabel)] = encode_record(record);
  const std::string place = place_directory(wanted.name, record.place);
  const std::string body =
      container_body({.spec = spec,
                      .image = wanted.image,
                      .engine = engine_.facts(control),
                      .labels = labels,
                      .shared_path = places().path_of(place),
                      .runtime = options_.runtime,
                      .first_lease = streams() ? kGreetPatience : kShared,
                      .host_kernel = has_own_kernel() ? kernel_of_this_machine() : ""});
  std::optional<std::string> id;
  const auto leave_nothing = [&] {
    try {
      if (id) engine_.remove(*id, {});
    } catch (const std::exception& error) {
      // Why there is no sandbox is what the caller has to hear; the next sweep ends what is left.
      write_log(options_.log, LogLevel::warning,
                fmt::format("docker: removing container {}, which could not be used: {}", *id,
                            escape_for_display(error.what())));
    }
    places().remove(place);
  };
  try {
    places().make(place);
    const auto fill = [&] {
      fill_guest_volume(engine_, wanted.image.id, wanted.name + kHelperSuffix, labels, control);
    };
    if (streams()) {
      places().name_engine(place, engine_.facts(control).identity);
      // Of a start that gVisor refuses, Docker keeps a process for good.
      if (!engine_.volume_is_there(guest_volume(), control)) fill();
    }
    for (bool filled = false;; filled = true) {
      id = engine_.create(wanted.name, body, control);
      if (!id) {
        places().remove(place);
        return nullptr;
      }
      try {
        if (streams()) {
          return start_streamed(*id, record, spec.keep_idle, places().open(place), control);
        }
        return start_and_greet(*id, record, places().open(place), control);
      } catch (const EngineRefused& refused) {
        // The guest program is not there yet: by this build's first sandbox with this engine.
        if (filled) throw;
        write_log(options_.log, LogLevel::debug,
                  fmt::format("docker: the first start: {}", escape_for_display(refused.what())));
        engine_.remove(*id, control);
        id.reset();
        fill();
      }
    }
  } catch (const EngineRefused& refused) {
    leave_nothing();
    throw_refused(options_.log, "making a container", refused);
  } catch (const std::system_error& error) {
    leave_nothing();
    throw SandboxUnavailable(fmt::format("a container could not be made: {}", error.what()));
  } catch (...) {
    leave_nothing();
    throw;
  }
}

std::shared_ptr<const HeldContainer> DockerBackend::Impl::start_and_greet(
    const std::string& id, Record record, UniqueFd directory, const CallControl& control) {
  // Of a start that was refused.
  unlinkat(directory.get(), guest::kFirstLeaseName, 0);
  const UniqueFd greeting = sys::make_stream_socket();
  sys::bind_to_path(greeting.get(),
                    fmt::format("/proc/self/fd/{}/{}", directory.get(), guest::kFirstLeaseName));
  sys::start_listening(greeting.get());
  EngineClient::Pending ended = engine_.begin_waiting(id, "next-exit");
  engine_.start(id, control);
  const auto gone = [&] {
    throw SandboxUnavailable(
        "the container ended before it was ready",
        "does the engine run on this machine, as this user or root, and see this user's state "
        "directory? An engine that maps root to another user, or runs in a machine of its own, "
        "cannot serve here");
  };
  if (!wait_for(greeting.get(), ended, control)) gone();
  UniqueFd lease = sys::accept_connection(greeting.get());
  if (!lease) gone();
  guest::AgentReport report{};
  if (!wait_for(lease.get(), ended, control)) gone();
  const sys::ReceivedBytes came = sys::receive_bytes(
      lease.get(), {reinterpret_cast<char*>(&report), sizeof report}, sys::Blocking::no);
  if (came.bytes != sizeof report) gone();
  report.text[sizeof report.text - 1] = '\0';
  if (report.error != 0) {
    throw SandboxUnavailable(fmt::format("the container's first process could not begin: {}",
                                         escape_for_display(report.text)));
  }
  unlinkat(directory.get(), guest::kFirstLeaseName, 0);
  auto held = std::make_shared<HeldContainer>();
  const auto found = engine_.inspect(id, control);
  if (found) held->process = found->process;
  held->record = std::move(record);
  held->id = id;
  held->directory = std::move(directory);
  held->lease = std::move(lease);
  if (!local::lease_holds(held->lease.get())) gone();
  return held;
}

std::shared_ptr<ContainerStream> DockerBackend::Impl::open_stream(
    const std::string& id, std::optional<std::chrono::milliseconds> keep_idle,
    const CallControl& control) {
  const std::uint64_t wish =
      keep_idle ? static_cast<std::uint64_t>(keep_idle->count()) : guest::kNoWish;
  auto attached = engine_.exec(
      id, {std::string(kGuestEntry), "container-stream", std::to_string(wish)}, control);
  if (!attached) return nullptr;
  auto stream =
      std::make_shared<ContainerStream>(std::move(*attached), sandbox_id(id), options_.log);
  CallControl greeting = control;
  const auto most = Clock::now() + kGreetPatience;
  greeting.deadline = control.deadline ? std::min(*control.deadline, most) : most;
  try {
    stream->await_ready(greeting);
    return stream;
  } catch (const SandboxUnavailable& ended) {
    write_log(options_.log, LogLevel::warning,
              fmt::format("docker: container {}: {}", id, escape_for_display(ended.message())));
    return nullptr;
  }
}

std::shared_ptr<const HeldContainer> DockerBackend::Impl::start_streamed(
    const std::string& id, Record record, std::chrono::milliseconds keep_idle, UniqueFd directory,
    const CallControl& control) {
  engine_.start(id, control);
  auto held = std::make_shared<HeldContainer>();
  held->stream = open_stream(id, keep_idle, control);
  if (!held->stream) {
    throw SandboxUnavailable("the container ended before it was ready",
                             "what it said is in the engine's log");
  }
  const auto found = engine_.inspect(id, control);
  if (found) held->process = found->process;
  held->record = std::move(record);
  held->id = id;
  held->directory = std::move(directory);
  held->keep_idle = keep_idle.count();
  return held;
}

}  // namespace casemate
