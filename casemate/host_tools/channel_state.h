#pragma once

// What serves the connections of one run's socket. For host_tools/ alone, by subject:
// channel_connections.cc (taking and ending them), channel_requests.cc (reading and serving),
// channel_answers.cc.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/host_tools/channel.h"
#include "casemate/host_tools/channel_frame.h"
#include "casemate/host_tools/crew.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/epoll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate {

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
  // Whose request was read last; compared, never followed.
  std::atomic<const Connection*> asked_last = nullptr;

  void log(std::string_view text) const;

  // -- Connections: channel_connections.cc

  void serve();
  void take_connections();
  void add(sys::UniqueFd socket);
  // With `mutex` held. Callers keep their connections for calls to come, and a pool of processes
  // may keep all that there are. False when every one has a call under way.
  bool retire_the_longest_idle();
  // With the connection's mutex.
  bool may_be_retired(const Connection& connection, sys::SteadyTime now) const;
  // With `mutex` held. From here on nothing of it is begun, also what a thread may just be reading,
  // so what its caller sends can be sent again.
  bool retire(const ConnectionPointer& connection, sys::SteadyTime now);
  // The connection is closed next, so what does not fit at once is nobody's loss.
  static void say_goodbye(const Connection& connection, std::string_view bytes) noexcept;
  // Whoever waits on it learns by its end that there is no answer.
  void give_up(const ConnectionPointer& connection, const std::exception& error);
  void drop(const ConnectionPointer& connection);
  // With the connection's mutex: nothing more comes of it.
  static void cut_off(Connection& connection);
  void close();

  // -- Requests: channel_requests.cc

  void read(const ConnectionPointer& connection);
  // Whether to stay with the connection.
  bool read_once(const ConnectionPointer& connection, sys::Blocking blocking);
  // With the connection's mutex. Counts what of `requests` may be under way and leaves those in
  // them; the rest waits. Whoever does not stay lets another thread read on.
  void begin(Connection& connection, std::vector<ChannelRequest>& requests, bool staying);
  bool serve_and_stay(const ConnectionPointer& connection, ChannelRequest request);
  void post(const ConnectionPointer& connection, ChannelRequest request);
  // With the connection's mutex.
  bool must_pause(const Connection& connection) const;
  // False when the caller is gone or makes no sense.
  bool read_requests(Connection& connection, sys::Blocking blocking,
                     std::vector<ChannelRequest>& requests);
  sys::ReceivedBytes receive(const Connection& connection, sys::Blocking blocking,
                             std::span<char> buffer) const;
  // All that is held for a run has one bound: half requests, whole ones, and what becomes of them.
  void count_held(Connection& connection, std::span<ChannelRequest> complete);
  HostToolAnswer refusal_of(const ChannelRequest& request) const;
  void serve_one(const ConnectionPointer& connection, ChannelRequest request);

  // -- Answers: channel_answers.cc

  void answer(const ConnectionPointer& connection, std::uint32_t id, const HostToolAnswer& result);
  void send_answer(const ConnectionPointer& connection, std::uint32_t id,
                   const HostToolAnswer& result);
  // With the connection's mutex.
  void read_on(Connection& connection);
  // What a caller does not take at once is sent by a thread that may wait for it.
  void send_rest(const ConnectionPointer& connection);
  // Returns whether something is left.
  bool send_some(Connection& connection);
};

}  // namespace casemate
