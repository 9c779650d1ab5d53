// Connections of a run's socket: taken, made room for, ended.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/host_tools/channel_state.h"

namespace casemate {
namespace {

// Connections taken in one go, so that a flood does not keep a thread from everything else.
constexpr int kMaxAccepted = 256;
// How long a thread stays with a caller that it has just answered: the next call is most likely on
// its way, and taken so without a hand-over.
constexpr std::chrono::milliseconds kStay{5};
// After a connection could not be taken: when the next try is.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

void HostToolChannel::State::serve() {
  sys::start_listening(listening.get());
  const std::lock_guard lock(mutex);
  listening_watched = run.crew().watch(
      listening.get(), [self = shared_from_this()](std::uint64_t) { self->take_connections(); });
  pause_watched = run.crew().watch(
      pause.get(), [self = shared_from_this()](std::uint64_t) { self->take_connections(); });
}

void HostToolChannel::State::take_connections() {
  std::string failure;
  try {
    for (int taken = 0; taken < kMaxAccepted; ++taken) {
      sys::UniqueFd socket = sys::accept_connection(listening.get());
      if (!socket) break;
      add(std::move(socket));
    }
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::lock_guard lock(mutex);
  if (closed) return;
  if (failure.empty()) {
    takes_none = false;
    run.crew().rearm(listening.get(), listening_watched);
    return;
  }
  // Out of descriptors, most likely, and the caller is still there: asked at once, the socket
  // would report it again and again.
  if (!std::exchange(takes_none, true)) {
    log(fmt::format("no connection can be taken for now: {}", escape_for_display(failure)));
  }
  sys::set_timer(pause.get(), sys::deadline_after(kAcceptPause));
  run.crew().rearm(pause.get(), pause_watched);
}

void HostToolChannel::State::add(sys::UniqueFd socket) {
  sys::make_blocking(socket.get(), kStay);
  const auto connection = std::make_shared<Connection>(std::move(socket), run);
  const std::lock_guard lock(mutex);
  if (closed) return;
  if (connections.size() >= kMaxChannelConnections && !retire_the_longest_idle()) {
    say_goodbye(*connection,
                encode_try_again(fmt::format("the host takes {} connections of a run at a time.",
                                             kMaxChannelConnections)));
    return;
  }
  connections.emplace(connection.get(), connection);
  const std::lock_guard own(connection->mutex);
  try {
    connection->watched = run.crew().watch(
        connection->socket.get(),
        [self = shared_from_this(), connection](std::uint64_t) { self->read(connection); });
  } catch (...) {
    connections.erase(connection.get());
    throw;
  }
}

bool HostToolChannel::State::retire_the_longest_idle() {
  const auto now = sys::SteadyTime::clock::now();
  std::vector<std::pair<sys::SteadyTime, ConnectionPointer>> idle;
  for (const auto& [key, connection] : connections) {
    const std::lock_guard own(connection->mutex);
    if (may_be_retired(*connection, now)) idle.emplace_back(connection->idle_since, connection);
  }
  std::ranges::sort(idle, {}, [](const auto& each) { return each.first; });
  return std::ranges::any_of(idle, [&](const auto& each) { return retire(each.second, now); });
}

bool HostToolChannel::State::may_be_retired(const Connection& connection,
                                            sys::SteadyTime now) const {
  if (connection.cut_off || connection.in_flight != 0 || !connection.unsent.empty()) return false;
  return !connection.half_read ||
         sys::later_than(connection.idle_since, options.request_patience) <= now;
}

bool HostToolChannel::State::retire(const ConnectionPointer& connection, sys::SteadyTime now) {
  {
    const std::lock_guard own(connection->mutex);
    if (!may_be_retired(*connection, now)) return false;
    connection->cut_off = true;
  }
  say_goodbye(*connection, encode_try_again("the connection was needed for another caller."));
  sys::shut_down(connection->socket.get());
  run.crew().forget(connection->watched);
  connections.erase(connection.get());
  return true;
}

void HostToolChannel::State::say_goodbye(const Connection& connection,
                                         std::string_view bytes) noexcept {
  try {
    sys::send_message(connection.socket.get(), bytes, {}, sys::Blocking::no);
  } catch (const std::exception&) {
    // The caller is gone.
  }
}

void HostToolChannel::State::give_up(const ConnectionPointer& connection,
                                     const std::exception& error) {
  {
    const std::lock_guard own(connection->mutex);
    if (connection->cut_off) return;
  }
  log(fmt::format("a connection is given up: {}", escape_for_display(error.what())));
  drop(connection);
}

void HostToolChannel::State::drop(const ConnectionPointer& connection) {
  std::uint64_t watched = 0;
  {
    const std::lock_guard own(connection->mutex);
    cut_off(*connection);
    watched = connection->watched;
  }
  sys::shut_down(connection->socket.get());
  const std::lock_guard lock(mutex);
  connections.erase(connection.get());
  if (!closed) run.crew().forget(watched);
}

void HostToolChannel::State::cut_off(Connection& connection) {
  connection.cut_off = true;
  connection.unsent.clear();
  connection.waiting.clear();
}

void HostToolChannel::State::close() {
  std::map<const Connection*, ConnectionPointer> open;
  {
    const std::lock_guard lock(mutex);
    if (closed) return;
    closed = true;
    open.swap(connections);
  }
  run.crew().forget(listening_watched);
  run.crew().forget(pause_watched);
  sys::shut_down(listening.get());
  for (const auto& [key, connection] : open) {
    std::uint64_t own_watched = 0;
    {
      const std::lock_guard own(connection->mutex);
      cut_off(*connection);
      own_watched = connection->watched;
    }
    run.crew().forget(own_watched);
    sys::shut_down(connection->socket.get());
  }
}

}  // namespace casemate
