#pragma once

// Host tool calls over a socket of the host's: any process of the run connects, nothing is polled.

#include <chrono>
#include <cstddef>
#include <memory>

#include "casemate/base/log.h"
#include "casemate/host_tools/run.h"
#include "casemate/sys/owner_process.h"

namespace casemate {

// Open connections of one run. For one more, that one is closed which has had no call for longest;
// where all have one under way or are sending one, the one more is told so and closed.
inline constexpr std::size_t kMaxChannelConnections = 64;

struct HostToolChannelOptions {
  Log log{};
  // Requests of one connection under way, at least 1; more are not read before one of them is
  // answered.
  std::size_t max_in_flight = 64;
  // A caller that takes nothing of its answers for so long is cut off. Above 0.
  std::chrono::nanoseconds send_patience = std::chrono::seconds(30);
  // A caller that has sent half a request and nothing more for so long makes room for another one
  // as if it had sent nothing. Above 0. One sends its request in one go, unless it was stopped.
  std::chrono::nanoseconds request_patience = std::chrono::seconds(1);
};

// The socket of one run and what is said over it (channel_frame.h). Whoever can reach the socket
// may call, in the name of this run: where it is bound is the whole of the permission. Nobody is
// asked who they are. What comes is bounded (connections, requests under way, bytes
// held: `HostToolRun::held_bytes`) and never trusted: what is no request is refused or cut off,
// never waited for.
class HostToolChannel {
 public:
  // Makes the socket. `run` must outlive the channel. Throws `InvalidArgument` for options out of
  // range, `std::system_error`.
  explicit HostToolChannel(HostToolRun& run, HostToolChannelOptions options = {});
  // `close`.
  ~HostToolChannel();
  HostToolChannel(const HostToolChannel&) = delete;
  HostToolChannel& operator=(const HostToolChannel&) = delete;

  // A Unix stream socket without an address, to be bound by who makes the call's scope. Borrowed.
  int socket() const;

  // Once it was bound: takes connections from now on. Throws `std::system_error`.
  void serve();

  // Cuts every connection off and takes no more. Idempotent; never throws. In a forked child of the
  // host it does nothing.
  void close() noexcept;

 private:
  struct Connection;
  struct State;

  std::shared_ptr<State> state_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate
