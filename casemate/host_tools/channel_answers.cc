// Answers to a connection, and what its caller is slow to take of them.

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/host_tools/channel_state.h"
#include "casemate/sys/poll.h"

namespace casemate {

void HostToolChannel::State::answer(const ConnectionPointer& connection, std::uint32_t id,
                                    const HostToolAnswer& result) {
  try {
    send_answer(connection, id, result);
  } catch (const std::exception& error) {
    give_up(connection, error);
  }
}

void HostToolChannel::State::send_answer(const ConnectionPointer& connection, std::uint32_t id,
                                         const HostToolAnswer& result) {
  const std::string bytes = encode_answer(id, result);
  const std::lock_guard own(connection->mutex);
  if (connection->cut_off) return;
  if (connection->waiting.empty()) {
    if (--connection->in_flight == 0) connection->idle_since = sys::SteadyTime::clock::now();
  } else {
    post(connection, std::move(connection->waiting.front()));
    connection->waiting.pop_front();
  }
  std::size_t sent = 0;
  if (connection->unsent.empty()) {
    try {
      while (sent < bytes.size()) {
        const std::size_t count = sys::send_message(
            connection->socket.get(), std::string_view(bytes).substr(sent), {}, sys::Blocking::no);
        if (count == 0) break;
        sent += count;
      }
    } catch (const std::system_error&) {
      // The caller is gone; its end is reported to whoever reads.
      return read_on(*connection);
    }
  }
  if (sent < bytes.size()) {
    connection->unsent.push_back(bytes.substr(sent));
    if (!std::exchange(connection->sending, true)) {
      run.crew().post([self = shared_from_this(), connection] { self->send_rest(connection); });
    }
  }
  read_on(*connection);
}

void HostToolChannel::State::read_on(Connection& connection) {
  // Answered by another thread than the one that stays: that one may not come back for long.
  if (connection.staying != std::thread::id() && connection.staying != std::this_thread::get_id()) {
    connection.staying = {};
    connection.paused = true;
  }
  if (!connection.paused || must_pause(connection)) return;
  connection.paused = false;
  run.crew().rearm(connection.socket.get(), connection.watched);
}

void HostToolChannel::State::send_rest(const ConnectionPointer& connection) {
  const Crew::Busy busy(run.crew());
  try {
    while (send_some(*connection)) {
    }
    return;
  } catch (const std::exception& error) {
    log(fmt::format("a caller takes no answers: {}", escape_for_display(error.what())));
  }
  drop(connection);
}

bool HostToolChannel::State::send_some(Connection& connection) {
  std::string bytes;
  {
    const std::lock_guard own(connection.mutex);
    if (connection.unsent.empty() || connection.cut_off) {
      connection.sending = false;
      if (!connection.cut_off) read_on(connection);
      return false;
    }
    bytes = connection.unsent.front();
  }
  std::string_view rest = bytes;
  while (!rest.empty()) {
    std::array<pollfd, 1> entries{pollfd{connection.socket.get(), POLLOUT, 0}};
    if (sys::poll_until(entries, sys::deadline_after(options.send_patience)) == 0) {
      throw std::system_error(ETIMEDOUT, std::generic_category());
    }
    rest.remove_prefix(sys::send_message(connection.socket.get(), rest, {}, sys::Blocking::no));
  }
  const std::lock_guard own(connection.mutex);
  // Cut off meanwhile, it has been emptied.
  if (!connection.unsent.empty()) connection.unsent.pop_front();
  return true;
}

}  // namespace casemate
