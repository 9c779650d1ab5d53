#pragma once

// The host's side of a multiplexed stream: control connections on the one hand, the guest on the
// other. Used by `MultiplexedStream` (in the application) and by the process that keeps a virtual
// machine, which applications reach by a socket.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/guest/frame.h"
#include "casemate/guest/stream/channel_bridge.h"
#include "casemate/guest/stream/stream_end.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

struct HostBridgeOptions {
  // Connections of the guest's programs at a time.
  std::uint32_t max_guest_connections = 1024;
  // For a moment, as each socket of a call is bound, there is a directory of mode 700 in it.
  std::string directory = "/tmp";
};

// For one thread. What travels with a control connection's frames becomes channels: connected
// sockets, listening ones (each connection of the guest's to one is connected here to the socket of
// that very call) and everything else as something that is open as long as the guest has it.
class HostBridge : public ChannelBridge {
 public:
  HostBridge(StreamEnd stream, HostBridgeOptions options);

 protected:
  // Carries a control connection's frames to the guest's agent. One too many is closed, which to
  // its user looks as a sandbox that has ended.
  void add_control(sys::UniqueFd socket);
  // After the last `turn`.
  void end_controls() noexcept;
  // Told what is refused, and why. The default says nothing.
  virtual void refused(std::string_view /*why*/) {}

 private:
  // A control connection: frames go over whole, so that what travels with one is known.
  struct Control {
    explicit Control(int socket) : reader(socket) {}
    FrameReader reader;
    std::string bytes;
    std::size_t sent = 0;
  };

  bool read_link(ChannelId channel, Link& link) override;
  void opened(ChannelId channel, ChannelKind kind, ChannelId related) override;
  void closed(ChannelId channel, ChannelKind kind) override;
  bool next_frame(ChannelId channel, Link& link, Control& control);
  bool carry(ChannelId control, Frame& frame);

  const HostBridgeOptions options_;
  std::map<ChannelId, Control> controls_;
};

}  // namespace casemate::guest
