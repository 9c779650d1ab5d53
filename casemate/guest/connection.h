#pragma once

// The host's end of a control or files connection: requests, answers, and waiting for them within
// the caller's bounds.

#include <chrono>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/core/control.h"
#include "casemate/core/errors.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A descriptor that becomes readable when a stop is requested; none when that cannot happen.
class StopEvent {
 public:
  explicit StopEvent(const std::stop_token& token);
  // -1 when a stop cannot be requested.
  int fd() const noexcept { return event_.get(); }

 private:
  struct Raise {
    int event;
    void operator()() const noexcept { sys::raise_event(event); }
  };
  sys::UniqueFd event_;
  std::optional<std::stop_callback<Raise>> callback_;  // dies before what it raises
};

// The guest broke the protocol or its stream ended: `SandboxUnavailable` with `what` in the text.
[[noreturn]] void throw_guest_lied(std::string_view what);
[[noreturn]] void throw_guest_gone();
// The sandbox of that id is of a build whose protocol or record is another: `SandboxUnavailable`.
[[noreturn]] void throw_another_build(std::string_view sandbox_id);

// What to do about an errno of a guest that could not provide; empty where nothing is known.
std::string no_resources_hint(int error);

// `until` came: `SandboxTimeout` that names whose patience it was.
[[noreturn]] void throw_timed_out(const CallControl& control);

// The ends of a new connection, the host's and the guest's. Throws `SandboxUnavailable`.
std::pair<sys::UniqueFd, sys::UniqueFd> make_connection();

// Whether a guest that was asked nothing over it has said nothing, a moment ago: anything else is
// its end.
bool is_silent(int connection);
// Whether the guest has closed its end, a moment ago. What it had said may still be there.
bool has_hung_up(int connection);

class Connection {
 public:
  Connection(sys::UniqueFd socket, std::chrono::nanoseconds silence);

  // Queues a frame and sends what fits; `flush` sends the rest. Both throw `SandboxUnavailable`
  // when the guest is gone, or a call of either has failed before, `flush` by `control` too.
  // Descriptors must stay open until flushed.
  void put(FrameType type, std::string_view payload = {}, std::span<const int> descriptors = {});
  void flush(const CallControl& control);

  // The next frame. Throws `SandboxUnavailable` (also when the stream ends), `SandboxTimeout`,
  // `SandboxCancelled`.
  Frame receive(const CallControl& control);
  // Storage for the next one's payload, of one that is done with.
  void reuse(std::string payload) noexcept { reader_.reuse(std::move(payload)); }

  // To be looked at with poll, not to be read.
  int descriptor() const { return socket_.get(); }

  // Gives the connection away; nothing may be queued or half received.
  sys::UniqueFd take() { return std::move(socket_); }

 private:
  bool send_queued();
  void wait(short events, const CallControl& control);

  sys::UniqueFd socket_;
  std::chrono::nanoseconds silence_;
  FrameReader reader_;
  FrameWriter writer_;
  // A frame may have gone in part, and the descriptors of one that waits may be others by now:
  // nothing is sent any more.
  bool broken_ = false;
};

}  // namespace casemate::guest
