#include "casemate/host_tools/channel.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/channel_frame.h"
#include "casemate/host_tools/crew.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/epoll.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
// Connections taken in one go, so that a flood does not keep a thread from everything else.
constexpr int kMaxAccepted = 256;
// How long a thread stays with a caller that it has just answered: the next call is most likely on
// its way, and taken so without a hand-over.
constexpr std::chrono::milliseconds kStay{5};
// After a connection could not be taken: when the next try is.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

// One caller's connection. Its reader belongs to whichever thread the crew gave it to; everything
// else to whoever holds the mutex.
struct HostToolChannel::Connection {
  Connection(sys::UniqueFd socket_fd, const HostToolRun& run)
      : socket(std::move(socket_fd)), reader(run.max_request_bytes()), half(run.held_bytes()) {}

  const sys::UniqueFd socket;
  ChannelReader reader;
  // For what the reader holds.
  HeldShare half;

  std::mutex mutex;
  std::uint64_t watched = 0;
  bool cut_off = false;
  // What was read last ended within a request.
  bool half_read = false;
  // Nothing more is read before an answer has gone.
  bool paused = false;
  // The thread that serves a caller that waits, and reads on afterwards. Nobody else reads before.
  std::thread::id staying;
  // A thread is at `unsent`.
  bool sending = false;
  std::size_t in_flight = 0;
  // While none is in flight: since when nothing has come.
  sys::SteadyTime idle_since = sys::SteadyTime::clock::now();
  // Read together with others, and not begun: what may be under way at once, is.
  std::deque<ChannelRequest> waiting;
  std::deque<std::string> unsent;
};

struct HostToolChannel::State : std::enable_shared_from_this<HostToolChannel::State> {
  State(HostToolRun& of, HostToolChannelOptions with) : run(of), options(std::move(with)) {}

  using ConnectionPointer = std::shared_ptr<Connection>;

  // Used by threads of its crew only while the channel is open.
  HostToolRun& run;
  const HostToolChannelOptions options;
  sys::UniqueFd listening = sys::make_stream_socket();
  const std::shared_ptr<HeldBytes> held = run.held_bytes();

  std::mutex mutex;
  bool closed = false;
  std::uint64_t listening_watched = 0;
  // Until the next try to take connections.
  sys::UniqueFd pause = sys::make_timer();
  std::uint64_t pause_watched = 0;
  // Was said, once for as long as it lasts.
  bool takes_none = false;
  std::map<const Connection*, ConnectionPointer> connections;

  void log(std::string_view text) const {
    write_log(options.log, LogLevel::warning,
              fmt::format("host tools: run {}: {}", run.id(), text));
  }

  // -- Connections
  // ---------------------------------------------------------------------------------

  void serve() {
    sys::start_listening(listening.get());
    const std::lock_guard lock(mutex);
    listening_watched = run.crew().watch(
        listening.get(), [self = shared_from_this()](std::uint64_t) { self->take_connections(); });
    pause_watched = run.crew().watch(
        pause.get(), [self = shared_from_this()](std::uint64_t) { self->take_connections(); });
  }

  void take_connections() {
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

  void add(sys::UniqueFd socket) {
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

  // With `mutex` held. Callers keep their connections for calls to come, and a pool of processes
  // may keep all that there are. False when every one has a call under way.
  bool retire_the_longest_idle() {
    const auto now = sys::SteadyTime::clock::now();
    std::vector<std::pair<sys::SteadyTime, ConnectionPointer>> idle;
    for (const auto& [key, connection] : connections) {
      const std::lock_guard own(connection->mutex);
      if (may_be_retired(*connection, now)) idle.emplace_back(connection->idle_since, connection);
    }
    std::ranges::sort(idle, {}, [](const auto& each) { return each.first; });
    return std::ranges::any_of(idle, [&](const auto& each) { return retire(each.second, now); });
  }

  // With the connection's mutex.
  bool may_be_retired(const Connection& connection, sys::SteadyTime now) const {
    if (connection.cut_off || connection.in_flight != 0 || !connection.unsent.empty()) return false;
    return !connection.half_read ||
           sys::later_than(connection.idle_since, options.request_patience) <= now;
  }

  // With `mutex` held. From here on nothing of it is begun, also what a thread may just be reading,
  // so what its caller sends can be sent again.
  bool retire(const ConnectionPointer& connection, sys::SteadyTime now) {
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

  // The connection is closed next, so what does not fit at once is nobody's loss.
  static void say_goodbye(const Connection& connection, std::string_view bytes) noexcept {
    try {
      sys::send_message(connection.socket.get(), bytes, {}, sys::Blocking::no);
    } catch (const std::exception&) {
      // The caller is gone.
    }
  }

  void drop(const ConnectionPointer& connection) {
    std::uint64_t watched = 0;
    {
      const std::lock_guard own(connection->mutex);
      connection->cut_off = true;
      watched = connection->watched;
      connection->unsent.clear();
      connection->waiting.clear();
    }
    sys::shut_down(connection->socket.get());
    const std::lock_guard lock(mutex);
    connections.erase(connection.get());
    if (!closed) run.crew().forget(watched);
  }

  // -- Requests
  // ------------------------------------------------------------------------------------

  void read(const ConnectionPointer& connection) {
    {
      // Orders this thread after the one that read before.
      const std::lock_guard own(connection->mutex);
      if (connection->cut_off) return;
    }
    try {
      sys::Blocking blocking = sys::Blocking::no;
      while (read_once(connection, blocking)) blocking = sys::Blocking::yes;
    } catch (const std::exception& error) {
      give_up(connection, error);
    }
  }

  // Whoever waits on it learns by its end that there is no answer.
  void give_up(const ConnectionPointer& connection, const std::exception& error) {
    {
      const std::lock_guard own(connection->mutex);
      if (connection->cut_off) return;
    }
    log(fmt::format("a connection is given up: {}", escape_for_display(error.what())));
    drop(connection);
  }

  // Whether to stay with the connection.
  bool read_once(const ConnectionPointer& connection, sys::Blocking blocking) {
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
        staying = requests.size() == 1 && (requests[0].id & kWaits) != 0 && !connection->half_read;
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

  // With the connection's mutex. Counts what of `requests` may be under way and leaves those in
  // them; the rest waits. Whoever does not stay lets another thread read on.
  void begin(Connection& connection, std::vector<ChannelRequest>& requests, bool staying) {
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

  bool serve_and_stay(const ConnectionPointer& connection, ChannelRequest request) {
    serve_one(connection, std::move(request));
    const std::lock_guard own(connection->mutex);
    // The answer may have come from elsewhere long ago, and the connection have another reader.
    if (connection->cut_off || connection->staying != std::this_thread::get_id()) return false;
    connection->staying = {};
    connection->paused = must_pause(*connection);
    return !connection->paused;
  }

  void post(const ConnectionPointer& connection, ChannelRequest request) {
    run.crew().post([self = shared_from_this(), connection,
                     held = std::make_shared<ChannelRequest>(std::move(request))] {
      self->serve_one(connection, std::move(*held));
    });
  }

  bool must_pause(const Connection& connection) const {
    return connection.in_flight >= options.max_in_flight || !connection.waiting.empty() ||
           !connection.unsent.empty();
  }

  // False when the caller is gone or makes no sense.
  bool read_requests(Connection& connection, sys::Blocking blocking,
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

  sys::ReceivedBytes receive(const Connection& connection, sys::Blocking blocking,
                             std::span<char> buffer) const {
    std::optional<Crew::Busy> waiting;
    if (blocking == sys::Blocking::yes) waiting.emplace(run.crew());
    return sys::receive_bytes(connection.socket.get(), buffer, blocking);
  }

  // All that is held for a run has one bound: half requests, whole ones, and what becomes of them.
  void count_held(Connection& connection, std::span<ChannelRequest> complete) {
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

  HostToolAnswer refusal_of(const ChannelRequest& request) const {
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

  void serve_one(const ConnectionPointer& connection, ChannelRequest request) {
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

  // -- Answers
  // -------------------------------------------------------------------------------------

  void answer(const ConnectionPointer& connection, std::uint32_t id, const HostToolAnswer& result) {
    try {
      send_answer(connection, id, result);
    } catch (const std::exception& error) {
      give_up(connection, error);
    }
  }

  void send_answer(const ConnectionPointer& connection, std::uint32_t id,
                   const HostToolAnswer& result) {
    std::string bytes = encode_answer(id, result);
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
          const std::size_t count =
              sys::send_message(connection->socket.get(), std::string_view(bytes).substr(sent), {},
                                sys::Blocking::no);
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

  // With the connection's mutex.
  void read_on(Connection& connection) {
    // Answered by another thread than the one that stays: that one may not come back for long.
    if (connection.staying != std::thread::id() &&
        connection.staying != std::this_thread::get_id()) {
      connection.staying = {};
      connection.paused = true;
    }
    if (!connection.paused || must_pause(connection)) return;
    connection.paused = false;
    run.crew().rearm(connection.socket.get(), connection.watched);
  }

  // What a caller does not take at once is sent by a thread that may wait for it.
  void send_rest(const ConnectionPointer& connection) {
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

  // Returns whether something is left.
  bool send_some(Connection& connection) {
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

  void close() {
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
        connection->cut_off = true;
        connection->unsent.clear();
        connection->waiting.clear();
        own_watched = connection->watched;
      }
      run.crew().forget(own_watched);
      sys::shut_down(connection->socket.get());
    }
  }
};

HostToolChannel::HostToolChannel(HostToolRun& run, HostToolChannelOptions options) {
  if (options.max_in_flight == 0) {
    throw InvalidArgument("max_in_flight is 0; it takes at least 1",
                          "no request would ever be read");
  }
  for (const auto& [name, patience] : {std::pair("send_patience", options.send_patience),
                                       std::pair("request_patience", options.request_patience)}) {
    if (patience.count() > 0) continue;
    throw InvalidArgument(fmt::format("{} is {} ns; it must be above 0", name, patience.count()),
                          "callers would be cut off for being a moment late");
  }
  state_ = std::make_shared<State>(run, std::move(options));
}

HostToolChannel::~HostToolChannel() { close(); }

int HostToolChannel::socket() const { return state_->listening.get(); }

void HostToolChannel::serve() { state_->serve(); }

void HostToolChannel::close() noexcept {
  if (!owner_.is_current()) return;
  try {
    state_->close();
  } catch (const std::exception& error) {
    state_->log(fmt::format("closing the channel: {}", escape_for_display(error.what())));
  }
}

}  // namespace casemate
