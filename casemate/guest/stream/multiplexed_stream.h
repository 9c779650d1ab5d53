#pragma once

// The host's end of a guest that is reached by one stream of bytes: what a backend needs beside
// `AgentSandbox` where host and guest share no sockets.
//
// A backend starts the guest program in its place with the stream (`serve_stream`,
// guest/agent/serve_stream.h: standard streams or a serial port), makes one `MultiplexedStream` of
// the other end and gives `connect` to `AgentSandboxParts::connect`:
//
//   auto stream = std::make_shared<guest::MultiplexedStream>(std::move(end), options);
//   stream->await_ready(control);
//   parts.connect = [stream](const CallControl& c) { return stream->connect(c); };
//
// Everything else stays as it is over a socket: descriptors that a control connection carries
// become channels. A call's host tools and egress are sockets in the guest, bound where only that
// call sees them; each connection to one becomes a channel, and is connected here to the socket of
// that very call, which no path leads to. What cannot be carried are control groups and their
// counters: a `CallAccounting` over a stream has neither `groups` nor `cpu_budget` (the call fails
// if it does).

#include <cstdint>
#include <memory>
#include <string>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/guest/stream/stream_end.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

struct MultiplexedStreamOptions {
  // The sandbox's id, for what is said about it.
  std::string id{};
  Log log{};
  // Connections of the guest's programs at a time (host tools and egress of all calls together; of
  // one call 256); one more waits in the guest. At most 1,024, and a quarter of the descriptors
  // that this process may have.
  std::uint32_t max_guest_connections = 1024;
  // For a moment, as each socket of a call is bound, there is a directory of mode 700 in it.
  std::string directory = "/tmp";
};

// Made for one stream, used from any number of threads. It has one thread of its own, with all
// signals blocked, which ends with the stream.
//
// Every byte of the guest's is checked (multiplexer.h). A guest that breaks the protocol, says
// goodbye or vanishes ends the stream: every connection over it is closed, which their users see as
// the sandbox's end, and the log says why. What a hostile guest can have held here: 128 KiB for
// each connection that is open and not read, of at most 2,048.
//
// In a forked child of the host it does nothing.
class MultiplexedStream {
 public:
  // Throws `std::system_error`.
  MultiplexedStream(StreamEnd stream, MultiplexedStreamOptions options);
  // `close`.
  ~MultiplexedStream();
  MultiplexedStream(const MultiplexedStream&) = delete;
  MultiplexedStream& operator=(const MultiplexedStream&) = delete;

  // Waits until the guest program is there and takes connections. Throws `SandboxUnavailable` when
  // the stream has ended or what came is none of ours, `SandboxTimeout`, `SandboxCancelled`.
  // Without a deadline it waits for as long as that takes.
  void await_ready(const CallControl& control) const;

  // A new control connection to the guest's agent: a blocking Unix stream socket. Waits as
  // `await_ready` and throws as that, and `SandboxUnavailable` when as many connections are open as
  // the guest allows.
  sys::UniqueFd connect(const CallControl& control);

  // Whether the stream has not ended, a moment ago.
  bool alive() const;

  // Says goodbye, so that the guest program ends, and closes everything; waits at most a second for
  // a guest that does not read. Idempotent.
  void close() noexcept;

 private:
  class Loop;

  std::unique_ptr<Loop> loop_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate::guest
