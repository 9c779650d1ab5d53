#include "casemate/backends/docker/lease.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stop_token>
#include <system_error>
#include <utility>

#include "casemate/backends/docker/places.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/poll.h"

namespace casemate::docker {
namespace {

using sys::UniqueFd;

// An agent does nothing that takes long; one that is silent for so long is stopped or broken.
constexpr std::chrono::seconds kPatience{5};
constexpr std::size_t kIdDigits = 24;

bool ask_for_lease(int connection, std::uint64_t keep_idle_ms) noexcept {
  guest::LeaseRequest request{};
  request.type = guest::kLeaseRequest;
  request.keep_idle_ms = keep_idle_ms;
  return send(connection, &request, sizeof request, MSG_NOSIGNAL) == sizeof request;
}

}  // namespace

std::string sandbox_id(const std::string& container_id) {
  return container_id.substr(0, kIdDigits);
}

UniqueFd take_lease(int directory, std::optional<std::chrono::milliseconds> keep_idle,
                    const CallControl& control) {
  try {
    UniqueFd connection = connect_in(directory, guest::kLeaseSocketName);
    const std::uint64_t wish =
        keep_idle ? static_cast<std::uint64_t>(keep_idle->count()) : guest::kNoWish;
    if (!connection || !ask_for_lease(connection.get(), wish)) return {};
    const UniqueFd stopped = sys::make_event();
    const std::stop_callback callback(control.stop, [&] { sys::raise_event(stopped.get()); });
    std::array<pollfd, 2> entries{pollfd{connection.get(), POLLIN, 0},
                                  pollfd{stopped.get(), POLLIN, 0}};
    const auto patience = std::chrono::steady_clock::now() + kPatience;
    const auto until = control.deadline ? std::min(*control.deadline, patience) : patience;
    const int ready = sys::poll_until(entries, until);
    if (entries[0].revents != 0) {
      char answer = 0;
      if (recv(connection.get(), &answer, 1, 0) == 1 && answer == guest::kLeaseGranted) {
        return connection;
      }
      return {};
    }
    if (ready > 0) throw SandboxCancelled("cancelled while taking a lease on a sandbox");
    if (until != patience) {
      throw SandboxTimeout("the deadline came while taking a lease on a sandbox");
    }
    return {};
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(fmt::format("a sandbox cannot be reached: {}", error.what()));
  }
}

bool change_keep_idle(const HeldContainer& held, std::chrono::milliseconds keep_idle) noexcept {
  if (held.stream) return held.keep_idle == keep_idle.count();
  if (held.keep_idle.exchange(keep_idle.count()) == keep_idle.count()) return true;
  ask_for_lease(held.lease.get(), static_cast<std::uint64_t>(keep_idle.count()));
  return true;
}

bool HeldContainer::holds() const noexcept {
  return stream ? stream->alive() : lease_holds(lease.get());
}

bool lease_holds(int lease) noexcept {
  // An agent says nothing on a lease that it has granted, so anything is the end.
  pollfd entry{.fd = lease, .events = POLLIN | POLLRDHUP, .revents = 0};
  int ready = -1;
  do {
    ready = poll(&entry, 1, 0);
  } while (ready < 0 && errno == EINTR);
  return ready == 0;
}

std::shared_ptr<const HeldContainer> HeldContainers::find(const std::string& digest) {
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  if (found->second->holds()) return found->second;
  by_digest_.erase(found);
  return nullptr;
}

void HeldContainers::put(const std::string& digest, std::shared_ptr<const HeldContainer> held) {
  const std::lock_guard lock(mutex_);
  by_digest_[digest] = std::move(held);
}

std::shared_ptr<const HeldContainer> HeldContainers::take(const std::string& container_id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(by_digest_.begin(), by_digest_.end(), [&](const auto& each) {
    return each.second->id == container_id;
  });
  if (found == by_digest_.end()) return nullptr;
  std::shared_ptr<const HeldContainer> held = std::move(found->second);
  by_digest_.erase(found);
  return held;
}

void HeldContainers::drop_dead() {
  const std::lock_guard lock(mutex_);
  std::erase_if(by_digest_, [](const auto& each) { return !each.second->holds(); });
}

}  // namespace casemate::docker
