// Requests of a connection: read, counted, and served.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/host_tools/channel_state.h"

namespace casemate {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;

}  // namespace

void HostToolChannel::State::read(const ConnectionPointer& connection) {
  {
    // Orders this thread after the one that read before.
    const std::lock_guard own(connection->mutex);
    if (connection->cut_off) return;
    // What it was armed before it had to: it is read on by the answer that goes.
    connection->paused = must_pause(*connection);
    if (connection->paused) return;
  }
  try {
    sys::Blocking blocking = sys::Blocking::no;
    while (read_once(connection, blocking)) blocking = sys::Blocking::yes;
  } catch (const std::exception& error) {
    give_up(connection, error);
  }
}

bool HostToolChannel::State::read_once(const ConnectionPointer& connection,
                                       sys::Blocking blocking) {
  std::vector<ChannelRequest> requests;
  const bool going_on = read_requests(*connection, blocking, requests);
  bool staying = false;
  {
    // While it was waited for, the connection may have been ended, the channel have been closed,
    // and the run be gone. What is begun from here on is counted.
    const std::lock_guard own(connection->mutex);
    if (connection->cut_off) return false;
    if (going_on) {
      connection->half_read = !connection->reader.between_requests();
      if (connection->half_read) connection->idle_since = sys::SteadyTime::clock::now();
      // Among several callers at a time, one thread that takes whatever is ready wakes less often
      // than a thread that sleeps at each.
      const bool alone = asked_last.exchange(connection.get()) == connection.get();
      staying =
          alone && requests.size() == 1 && (requests[0].id & kWaits) != 0 && !connection->half_read;
      begin(*connection, requests, staying);
    }
  }
  if (!going_on) {
    drop(connection);
    return false;
  }
  if (staying) return serve_and_stay(connection, std::move(requests[0]));
  for (std::size_t index = 1; index < requests.size(); ++index) {
    post(connection, std::move(requests[index]));
  }
  if (!requests.empty()) serve_one(connection, std::move(requests.front()));
  return false;
}

void HostToolChannel::State::begin(Connection& connection, std::vector<ChannelRequest>& requests,
                                   bool staying) {
  const std::size_t room = options.max_in_flight - connection.in_flight;
  const auto later =
      requests.begin() + static_cast<std::ptrdiff_t>(std::min(room, requests.size()));
  connection.waiting.assign(std::move_iterator(later), std::move_iterator(requests.end()));
  requests.erase(later, requests.end());
  connection.in_flight += requests.size();
  if (staying) {
    connection.staying = std::this_thread::get_id();
    return;
  }
  connection.paused = must_pause(connection);
  if (!connection.paused) run.crew().rearm(connection.socket.get(), connection.watched);
}

bool HostToolChannel::State::serve_and_stay(const ConnectionPointer& connection,
                                            ChannelRequest request) {
  serve_one(connection, std::move(request));
  const std::lock_guard own(connection->mutex);
  // The answer may have come from elsewhere long ago, and the connection have another reader.
  if (connection->cut_off || connection->staying != std::this_thread::get_id()) return false;
  connection->staying = {};
  connection->paused = must_pause(*connection);
  return !connection->paused;
}

void HostToolChannel::State::post(const ConnectionPointer& connection, ChannelRequest request) {
  run.crew().post([self = shared_from_this(), connection,
                   held = std::make_shared<ChannelRequest>(std::move(request))] {
    self->serve_one(connection, std::move(*held));
  });
}

bool HostToolChannel::State::must_pause(const Connection& connection) const {
  return connection.in_flight >= options.max_in_flight || !connection.waiting.empty() ||
         !connection.unsent.empty();
}

bool HostToolChannel::State::read_requests(Connection& connection, sys::Blocking blocking,
                                           std::vector<ChannelRequest>& requests) {
  std::array<char, kReadBytes> buffer;
  try {
    while (requests.size() < options.max_in_flight) {
      const sys::ReceivedBytes received =
          receive(connection, std::exchange(blocking, sys::Blocking::no), buffer);
      if (received.would_block) return true;
      if (received.bytes == 0) return false;
      const std::size_t known = requests.size();
      const bool sound = connection.reader.feed({buffer.data(), received.bytes}, requests);
      count_held(connection, std::span(requests).subspan(known));
      if (!sound) {
        say_goodbye(connection,
                    encode_answer(0, HostToolAnswer::refused("what was sent is no request.")));
        return false;
      }
      // Less than there was room for: there is no more, and if there is, it is reported.
      if (received.bytes < buffer.size()) return true;
    }
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

sys::ReceivedBytes HostToolChannel::State::receive(const Connection& connection,
                                                   sys::Blocking blocking,
                                                   std::span<char> buffer) const {
  std::optional<Crew::Busy> waiting;
  if (blocking == sys::Blocking::yes) waiting.emplace(run.crew());
  return sys::receive_bytes(connection.socket.get(), buffer, blocking);
}

void HostToolChannel::State::count_held(Connection& connection,
                                        std::span<ChannelRequest> complete) {
  const std::size_t half = connection.reader.held();
  // A few bytes are always there to be read on with.
  if (!connection.half.resize(half > kReadBytes ? half : 0)) {
    connection.reader.skip_current();
    connection.half.resize(0);
  }
  for (ChannelRequest& request : complete) {
    request.held = HeldShare(held);
    if (request.held.resize(request.name.size() + request.arguments.size())) continue;
    request.no_room = true;
    request.name = {};
    request.arguments = {};
  }
}

HostToolAnswer HostToolChannel::State::refusal_of(const ChannelRequest& request) const {
  if (request.too_large) {
    return HostToolAnswer::refused(
        fmt::format("the arguments are too large: the request has {} bytes; one may have {}.",
                    request.bytes, run.max_request_bytes()));
  }
  if (request.no_room) {
    return HostToolAnswer::refused(
        fmt::format("the request has {} bytes; of the {} that the host holds for the calls of a "
                    "run at a time, {} are left.",
                    request.bytes, held->max(), held->left()));
  }
  return HostToolAnswer::refused("the host cannot take the request apart.");
}

void HostToolChannel::State::serve_one(const ConnectionPointer& connection,
                                       ChannelRequest request) {
  try {
    if (request.too_large || request.no_room || request.malformed) {
      return answer(connection, request.id, refusal_of(request));
    }
    // The frame's bytes are ours and nobody folds them: an answer may have all that it may have.
    constexpr std::uint64_t kFramingBytes = 0;
    run.dispatch(
        request.name, std::move(request.arguments), kFramingBytes,
        [self = shared_from_this(), connection, id = request.id](const HostToolAnswer& result) {
          self->answer(connection, id, result);
        },
        std::move(request.held));
  } catch (const std::exception& error) {
    give_up(connection, error);
  }
}

}  // namespace casemate
