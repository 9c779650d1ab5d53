#include "casemate/local/lease.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <stop_token>
#include <system_error>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/keeper_client.h"
#include "casemate/local/state_directory.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::local {
namespace {

using sys::UniqueFd;

// An agent does nothing that takes long; one that is silent for so long is stopped or broken.
constexpr std::chrono::seconds kPatience{5};

bool ask_for_lease(int connection, std::optional<std::chrono::milliseconds> keep_idle) noexcept {
  guest::LeaseRequest request{};
  request.type = guest::kLeaseRequest;
  request.keep_idle_ms =
      keep_idle ? static_cast<std::uint64_t>(keep_idle->count()) : guest::kNoWish;
  return sys::try_send_value(connection, request);
}

}  // namespace

std::optional<UniqueFd> take_lease(int directory,
                                   std::optional<std::chrono::milliseconds> keep_idle,
                                   const CallControl& control) {
  try {
    std::optional<UniqueFd> connection = connect_to(directory, guest::kLeaseSocketName);
    if (!connection || !ask_for_lease(connection->get(), keep_idle)) return std::nullopt;
    const UniqueFd stopped = sys::make_event();
    const std::stop_callback callback(control.stop, [&] { sys::raise_event(stopped.get()); });
    std::vector<pollfd> entries{{.fd = connection->get(), .events = POLLIN, .revents = 0},
                                {.fd = stopped.get(), .events = POLLIN, .revents = 0}};
    const auto patience = std::chrono::steady_clock::now() + kPatience;
    const auto until = control.deadline ? std::min(*control.deadline, patience) : patience;
    const int ready = sys::poll_until(entries, until);
    if (entries[0].revents != 0) {
      char answer = 0;
      if (recv(connection->get(), &answer, 1, 0) == 1 && answer == guest::kLeaseGranted) {
        return connection;
      }
      return std::nullopt;
    }
    if (ready > 0) throw SandboxCancelled("cancelled while taking a lease on a sandbox");
    if (until != patience) {
      throw SandboxTimeout("the deadline came while taking a lease on a sandbox");
    }
    return std::nullopt;
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(fmt::format("a sandbox cannot be reached: {}", error.what()),
                             provider_hint(error));
  }
}

void change_keep_idle(int lease, std::chrono::milliseconds keep_idle) noexcept {
  ask_for_lease(lease, keep_idle);
}

// An agent says nothing on a lease that it has granted, so whatever comes is its end.
bool lease_holds(int lease) noexcept {
  pollfd entry{.fd = lease, .events = POLLIN | POLLRDHUP, .revents = 0};
  try {
    return sys::poll_until({&entry, 1}, sys::SteadyTime{}) == 0;
  } catch (const std::system_error&) {
    return false;
  }
}

namespace {

std::optional<int> listener_of(int connection) noexcept {
  ucred agent{};
  socklen_t size = sizeof agent;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &agent, &size) < 0 || agent.pid <= 0) {
    return std::nullopt;
  }
  return agent.pid;
}

}  // namespace

std::optional<int> agent_of(int directory) noexcept {
  try {
    const std::optional<UniqueFd> connection = connect_to(directory, guest::kLeaseSocketName);
    return connection ? listener_of(connection->get()) : std::nullopt;
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

bool is_alive(int directory) { return connect_to(directory, guest::kLeaseSocketName).has_value(); }

bool kill_agent(int directory) {
  const std::optional<UniqueFd> connection = connect_to(directory, guest::kLeaseSocketName);
  if (!connection) return false;
  const std::optional<int> agent = listener_of(connection->get());
  if (!agent) sys::throw_error(ESRCH, "a sandbox's agent is in another pid namespace");
  UniqueFd process;
  try {
    process = sys::open_pid(*agent);
  } catch (const std::system_error& error) {
    if (error.code().value() == ESRCH) return true;  // it ended by itself in this moment
    throw;
  }
  // The number could have gone to another process before it was opened. Then the agent is dead and
  // its sockets are closed, which a second connection shows; so they are where it is just ending,
  // and its end is waited for, in vain should it be another after all.
  if (is_alive(directory)) sys::send_signal(process.get(), SIGKILL);
  if (!sys::wait_ended(process.get(), std::chrono::steady_clock::now() + kPatience)) {
    sys::throw_error(ETIMEDOUT, "waiting for a sandbox's agent to end");
  }
  return true;
}

}  // namespace casemate::local
