#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "casemate/backends/docker/docker_backend_impl.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/local/lease.h"

namespace casemate {

using namespace docker;

namespace {

// Of everything that ends a sandbox: an engine that takes longer is stuck, and the next sweep tries
// again.
constexpr std::chrono::seconds kPatience{60};

CallControl with_patience() {
  CallControl control;
  control.deadline = std::chrono::steady_clock::now() + kPatience;
  return control;
}

constexpr std::string_view kNamePrefix = "casemate-";
constexpr std::size_t kDigestDigits = 24;

// Of what "casemate-<digest>" or "<digest>-<place>" is the name.
std::string digest_in(std::string_view name) {
  if (name.starts_with(kNamePrefix)) name.remove_prefix(kNamePrefix.size());
  return std::string(name.substr(0, kDigestDigits));
}

std::string owner_label() { return fmt::format("{}={}", kOwnerLabel, kOwner); }

}  // namespace

bool DockerBackend::Impl::end(const Container& container, const CallControl& control) {
  // Until the end: given back before, the last lease would end the sandbox by itself, and it would
  // not count as ended here.
  const auto held = held_.take(container.id);
  if (held && held->stream) held->stream->expect_end();
  const bool removed = engine_.remove(container.id, control);
  const auto text = container.labels.find(std::string(kRecordLabel));
  if (text != container.labels.end()) {
    if (const auto record = decode_record(text->second)) {
      const std::string name = std::string(kNamePrefix) + digest_in(container.name);
      places().remove(place_directory(name, record->place));
    }
  }
  return removed && container.is_live();
}

void DockerBackend::Impl::clear_places(const std::string& digest) {
  for (const std::string& name : places().names()) {
    if (digest_in(name) != digest) continue;
    if (places().is_of_another(name, engine_.known_facts().value_or(EngineFacts{}).identity)) {
      continue;
    }
    // That of a living one is another engine's, with which this state directory is shared.
    const sys::UniqueFd directory = places().open(name);
    if (directory && local::is_alive(directory.get())) continue;
    places().remove(name);
  }
}

int DockerBackend::Impl::dispose_labelled(
    const std::map<std::string, std::string>& labels) noexcept {
  int ended = 0;
  try {
    std::vector<std::string> filter{owner_label()};
    for (const auto& [name, value] : labels) filter.push_back(name + "=" + value);
    for (const Container& container : engine_.list(filter, with_patience())) {
      // What an engine answers is looked at again: a filter that it ignores must not end others'.
      if (!is_owned(container.labels) || !std::ranges::includes(container.labels, labels)) continue;
      // A failure is this sandbox's alone: the others still have to end.
      try {
        if (end(container, with_patience())) ++ended;
      } catch (const std::exception& error) {
        write_log(options_.log, LogLevel::error,
                  fmt::format("docker: ending container {}: {}", container.id,
                              escape_for_display(error.what())));
      }
    }
    held_.drop_dead();
  } catch (const std::exception& error) {
    write_log(options_.log, LogLevel::warning,
              fmt::format("docker: ending sandboxes: {}", escape_for_display(error.what())));
  }
  sweep({});
  return ended;
}

bool DockerBackend::Impl::dispose_id(std::string_view id) noexcept {
  try {
    if (id.size() < 12 || id.find_first_not_of("0123456789abcdef") != id.npos) return false;
    const auto found = engine_.inspect(std::string(id), with_patience());
    return found && is_owned(found->labels) && end(*found, with_patience());
  } catch (const std::exception& error) {
    write_log(options_.log, LogLevel::error,
              fmt::format("docker: ending sandbox {}: {}", escape_for_display(id),
                          escape_for_display(error.what())));
    return false;
  }
}

// What processes left that were killed: containers that never started or are over, and directories
// without a container. Each under its key's lock, so that nothing is touched that somebody makes.
void DockerBackend::Impl::sweep(const CallControl& bounds) noexcept {
  CallControl control = with_patience();
  control.stop = bounds.stop;
  if (bounds.deadline) control.deadline = std::min(*control.deadline, *bounds.deadline);
  // What cannot be ended is there every time, and keeps nobody from removing the rest.
  const auto attempt = [&](const std::function<void()>& act) {
    try {
      act();
    } catch (const std::exception& error) {
      write_log(options_.log, LogLevel::warning,
                fmt::format("docker: sweeping: {}", escape_for_display(error.what())));
    }
  };
  attempt([&] {
    std::set<std::string> alive;
    for (const Container& container : engine_.list({owner_label()}, control)) {
      if (!is_owned(container.labels)) continue;
      if (container.is_live()) {
        alive.insert(digest_in(container.name));
      } else {
        attempt([&] { sweep_ended(container, control); });
      }
    }
    for (const std::string& name : places().names()) {
      const std::string digest = digest_in(name);
      if (alive.contains(digest)) continue;
      attempt([&] {
        const auto lock = places().try_lock(digest);
        // Made since the list was, or about to be.
        if (!lock || engine_.inspect(std::string(kNamePrefix) + digest, control)) return;
        clear_places(digest);
      });
    }
  });
}

void DockerBackend::Impl::sweep_ended(const Container& container, const CallControl& control) {
  const auto text = container.labels.find(std::string(kRecordLabel));
  std::optional<Record> record;
  if (text != container.labels.end()) record = decode_record(text->second);
  // Another user's, whose locks are not ours.
  if (!record || record->home != places().home()) return;
  const auto lock = places().try_lock(digest_in(container.name));
  if (!lock) return;
  // What was listed may have been somebody's who was starting it.
  const auto now = engine_.inspect(container.id, control);
  if (now && is_owned(now->labels) && !now->is_live()) end(*now, control);
}

}  // namespace casemate
