#include "casemate/guest/agent/serve_stream.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/stream/channel_bridge.h"
#include "casemate/sys/error.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

// Connections to one socket of a call's at a time, so that one call's flood leaves others some;
// more wait where they knock.
constexpr std::size_t kMaxOfListener = 256;

// How many the host may open: each is two descriptors for a moment, and one for good.
std::uint32_t host_channels() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kMaxStreamChannels;
  return static_cast<std::uint32_t>(std::min<rlim_t>(kMaxStreamChannels, files.rlim_cur / 4));
}

class GuestBridge : public ChannelBridge {
 public:
  GuestBridge(StreamEnd stream, const std::function<sys::UniqueFd()>& connect)
      : ChannelBridge(StreamSide::guest, std::move(stream), host_channels()), connect_(connect) {}

  void run() {
    while (turn()) {
    }
  }

 private:
  struct Listener {
    std::size_t connections = 0;
    bool listens = false;
  };

  void opened(ChannelId channel, ChannelKind kind, ChannelId related) override {
    try {
      if (kind == ChannelKind::control) {
        sys::UniqueFd socket = connect_();
        if (!socket) return drop(channel);
        add(channel, kind, related, std::move(socket));
        return;
      }
      Link* control = find(related);
      if (control == nullptr || control->write_broken) return drop(channel);
      if (control->carried.size() >= kMaxFrameDescriptors) {
        throw ProtocolError("more descriptors than a frame may carry");
      }
      if (kind == ChannelKind::listener) {
        sys::UniqueFd socket = sys::make_stream_socket();
        sys::UniqueFd copy(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
        if (!copy) sys::throw_errno("duplicating a socket");
        control->carried.push_back(std::move(copy));
        add(channel, kind, related, std::move(socket));
        listeners_.try_emplace(channel);
        return;
      }
      auto [here, there] = sys::socket_pair(sys::SocketType::stream);
      control->carried.push_back(std::move(there));
      const Link& link = add(channel, kind, related, std::move(here));
      if (kind == ChannelKind::token) watch_link(channel, link);
    } catch (const std::system_error&) {
      // No descriptors left, or no agent. A frame without what it carries is of no use to its call.
      if (kind != ChannelKind::control) drop(related);
      drop(channel);
    }
  }

  bool read_link(ChannelId channel, Link& link) override {
    if (link.kind == ChannelKind::listener) return accept_one(channel, link);
    // The first that a call says, whether it opened, is said with its sockets bound.
    if (link.kind == ChannelKind::control) start_listening(channel);
    return ChannelBridge::read_link(channel, link);
  }

  void start_listening(ChannelId control) {
    if (listeners_.empty()) return;
    for (const ChannelId channel : related_to(control, ChannelKind::listener)) {
      Listener& listener = listeners_[channel];
      if (std::exchange(listener.listens, true)) continue;
      Link& link = *find(channel);
      try {
        sys::start_listening(link.socket.get());
        watch_link(channel, link);
      } catch (const std::system_error&) {
        // Not bound: the call could not be opened.
        link.socket.reset();
      }
    }
  }

  // False while no more may be taken, too: `closed` looks again.
  bool accept_one(ChannelId channel, Link& link) {
    Listener& listener = listeners_[channel];
    if (!multiplexer().can_open() || listener.connections >= kMaxOfListener) return false;
    sys::UniqueFd socket;
    try {
      socket = sys::accept_connection(link.socket.get());
    } catch (const std::system_error&) {
      return false;
    }
    if (!socket) {
      link.readable = false;
      return false;
    }
    const ChannelId accepted = multiplexer().open(ChannelKind::stream, channel);
    ++listener.connections;
    accepted_from_.emplace(accepted, channel);
    add(accepted, ChannelKind::stream, channel, std::move(socket));
    return true;
  }

  void closed(ChannelId channel, ChannelKind kind) override {
    if (kind == ChannelKind::listener) {
      listeners_.erase(channel);
      return;
    }
    const auto accepted = accepted_from_.find(channel);
    if (accepted == accepted_from_.end()) return;
    const auto from = listeners_.find(accepted->second);
    if (from != listeners_.end()) --from->second.connections;
    accepted_from_.erase(accepted);
    for (const auto& [waiting, listener] : listeners_) {
      if (Link* link = find(waiting); link != nullptr && listener.listens) queue(waiting, *link);
    }
  }

  const std::function<sys::UniqueFd()>& connect_;
  std::map<ChannelId, Listener> listeners_;
  std::map<ChannelId, ChannelId> accepted_from_;
};

}  // namespace

int serve_stream(StreamEnd stream, const std::function<sys::UniqueFd()>& connect) noexcept try {
  static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
  GuestBridge(std::move(stream), connect).run();
  return 0;
} catch (const std::exception&) {
  return 1;
}

}  // namespace casemate::guest
