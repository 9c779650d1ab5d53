#include "casemate/guest/stream/host_bridge.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <span>
#include <system_error>
#include <utility>

#include "casemate/guest/protocol.h"
#include "casemate/sys/hidden_socket.h"

namespace casemate::guest {
namespace {

std::uint32_t allowed_connections(std::uint32_t asked) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return asked;
  return static_cast<std::uint32_t>(std::min<rlim_t>(asked, files.rlim_cur / 4));
}

enum class SocketState { connected, unconnected, no_socket };

SocketState state_of(int fd) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    return SocketState::connected;
  }
  return errno == ENOTCONN ? SocketState::unconnected : SocketState::no_socket;
}

std::string encode_frame(const Frame& frame) {
  std::string bytes = Writer()
                          .u32(static_cast<std::uint32_t>(frame.payload.size()))
                          .u8(frame.type)
                          .u8(0)
                          .u8(0)
                          .u8(0)
                          .take();
  return bytes += frame.payload;
}

}  // namespace

HostBridge::HostBridge(StreamEnd stream, HostBridgeOptions options)
    : ChannelBridge(StreamSide::host, std::move(stream),
                    allowed_connections(options.max_guest_connections)),
      options_(std::move(options)) {}

void HostBridge::add_control(sys::UniqueFd socket) {
  if (!multiplexer().can_open()) return;
  const ChannelId channel = multiplexer().open(ChannelKind::control, 0);
  controls_.try_emplace(channel, socket.get());
  add(channel, ChannelKind::control, 0, std::move(socket));
}

void HostBridge::end_controls() noexcept {
  hang_up();
  controls_.clear();
}

bool HostBridge::read_link(ChannelId channel, Link& link) {
  if (link.kind != ChannelKind::control) return ChannelBridge::read_link(channel, link);
  Control& control = controls_.at(channel);
  const std::size_t room = multiplexer().room(channel);
  if (room == 0) return false;
  if (control.sent == control.bytes.size() && !next_frame(channel, link, control)) return false;
  const auto rest = std::span<const char>(control.bytes).subspan(control.sent);
  const std::size_t size = std::min(rest.size(), multiplexer().room(channel));
  multiplexer().send(channel, rest.first(size));
  control.sent += size;
  return true;
}

// False when there is none to be sent for now.
bool HostBridge::next_frame(ChannelId channel, Link& link, Control& control) {
  while (true) {
    std::optional<Frame> frame;
    try {
      frame = control.reader.next();
      if (frame && !carry(channel, *frame)) continue;
    } catch (const std::exception& error) {
      // The other side's own: an accounting that cannot be had over a stream, no descriptors left.
      refused(error.what());
      drop(channel);
      return false;
    }
    if (frame) {
      control.bytes = encode_frame(*frame);
      control.sent = 0;
      return true;
    }
    link.readable = false;
    if (control.reader.closed()) end_reading(channel, link);
    return false;
  }
}

// Makes channels of a frame's descriptors. False when the frame shall not go: nobody would answer.
bool HostBridge::carry(ChannelId control, Frame& frame) {
  if (frame.descriptors.size() > multiplexer().own_limit() - multiplexer().own_open()) {
    if (is(frame, FrameType::attach)) return false;
    throw ProtocolError("a call cannot be opened: as many connections are open as there may be");
  }
  const bool opens = is(frame, FrameType::open_call);
  for (sys::UniqueFd& descriptor : frame.descriptors) {
    switch (state_of(descriptor.get())) {
      case SocketState::connected:
        add(multiplexer().open(ChannelKind::stream, control), ChannelKind::stream, control,
            std::move(descriptor));
        break;
      case SocketState::unconnected: {
        sys::UniqueFd address = sys::bind_hidden(descriptor.get(), options_.directory);
        add(multiplexer().open(ChannelKind::listener, control), ChannelKind::listener, control,
            std::move(address));
        break;
      }
      case SocketState::no_socket:
        if (opens) throw ProtocolError("a call's control groups do not go over a stream");
        add(multiplexer().open(ChannelKind::token, control), ChannelKind::token, control,
            std::move(descriptor));
        break;
    }
  }
  return true;
}

void HostBridge::opened(ChannelId channel, ChannelKind kind, ChannelId related) {
  const Link* listener = find(related);
  sys::UniqueFd socket;
  if (listener != nullptr && listener->kind == ChannelKind::listener && listener->socket) {
    try {
      socket = sys::connect_hidden(listener->socket.get());
    } catch (const std::system_error& error) {
      refused(std::string("a program's connection is refused: ") + error.what());
    }
  }
  if (!socket) return drop(channel);
  add(channel, kind, related, std::move(socket));
}

void HostBridge::closed(ChannelId channel, ChannelKind kind) {
  if (kind != ChannelKind::control) return;
  controls_.erase(channel);
  for (const ChannelId listener : related_to(channel, ChannelKind::listener)) {
    end_without_data(listener, *find(listener));
  }
}

}  // namespace casemate::guest
