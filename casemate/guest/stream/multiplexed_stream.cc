#include "casemate/guest/stream/multiplexed_stream.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/connection.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/guest/stream/channel_bridge.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/hidden_socket.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/signals.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

constexpr auto kGoodbyePatience = std::chrono::seconds(1);

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

class MultiplexedStream::Loop : public ChannelBridge {
 public:
  Loop(StreamEnd stream, MultiplexedStreamOptions options)
      : ChannelBridge(StreamSide::host, std::move(stream),
                      allowed_connections(options.max_guest_connections)),
        options_(std::move(options)) {
    wake_by(wake_.get());
    const sys::SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  }

  void await_ready(const CallControl& control) const {
    const StopEvent stop(control.stop);
    std::array<pollfd, 2> entries{pollfd{settled_.get(), POLLIN, 0}, pollfd{stop.fd(), POLLIN, 0}};
    if (sys::poll_until(entries, control.deadline) == 0) {
      throw SandboxTimeout("the sandbox was not ready by the call's deadline");
    }
    if (entries[0].revents == 0) throw SandboxCancelled("the call was cancelled by its caller");
    const std::lock_guard lock(mutex_);
    check_alive();
  }

  sys::UniqueFd connect() {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    {
      const std::lock_guard lock(mutex_);
      check_alive();
      if (open_ + new_.size() >= limit_) {
        throw SandboxUnavailable(
            fmt::format("the sandbox takes {} connections at a time and has them", limit_),
            "let calls and programs of it end first");
      }
      new_.push_back(std::move(far));
    }
    sys::raise_event(wake_.get());
    return std::move(near);
  }

  bool alive() const {
    const std::lock_guard lock(mutex_);
    return !ended_;
  }

  void close() noexcept {
    closing_ = true;
    sys::raise_event(wake_.get());
    if (thread_.joinable()) thread_.join();
  }

 private:
  // A control connection: frames go over whole, so that what travels with one is known.
  struct Control {
    explicit Control(int socket) : reader(socket) {}
    FrameReader reader;
    std::string bytes;
    std::size_t sent = 0;
  };

  // -- The thread --------------------------------------------------------------------------------

  void run() noexcept {
    std::string why = "the guest said goodbye";
    bool asked = false;
    bool other_version = false;
    try {
      while (!closing_ && turn()) publish();
      if (closing_) {
        asked = true;
        why = "it was closed";
        say_goodbye(sys::deadline_after(kGoodbyePatience));
      }
    } catch (const OtherStreamVersion& error) {
      why = error.what();
      other_version = true;
    } catch (const ProtocolError& error) {
      why = fmt::format("the guest broke the protocol: {}", error.what());
    } catch (const std::system_error& error) {
      why = fmt::format("the stream failed: {}", error.what());
    } catch (const std::exception& error) {
      why = error.what();
    }
    {
      const std::lock_guard lock(mutex_);
      ended_ = why;
      other_version_ = other_version;
      new_.clear();
    }
    hang_up();
    controls_.clear();
    sys::raise_event(settled_.get());
    if (!asked) log(LogLevel::warning, "the stream has ended: " + why);
  }

  void log(LogLevel level, std::string_view text) const {
    write_log(options_.log, level, fmt::format("sandbox {}: {}", options_.id, text));
  }

  // For `connect`, which only refuses early what would be refused here.
  void publish() {
    const std::size_t open = multiplexer().own_open();
    const std::lock_guard lock(mutex_);
    open_ = open;
  }

  void ready() override {
    {
      const std::lock_guard lock(mutex_);
      limit_ = multiplexer().own_limit();
    }
    sys::raise_event(settled_.get());
  }

  void woken() override {
    std::vector<sys::UniqueFd> connections;
    {
      const std::lock_guard lock(mutex_);
      connections.swap(new_);
      open_ += connections.size();
    }
    for (sys::UniqueFd& socket : connections) {
      // Closed here, it looks to its user as a sandbox that has ended.
      if (!multiplexer().can_open()) continue;
      const ChannelId channel = multiplexer().open(ChannelKind::control, 0);
      controls_.try_emplace(channel, socket.get());
      add(channel, ChannelKind::control, 0, std::move(socket));
    }
  }

  // -- From the host to the guest ----------------------------------------------------------------

  bool read_link(ChannelId channel, Link& link) override {
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
  bool next_frame(ChannelId channel, Link& link, Control& control) {
    while (true) {
      std::optional<Frame> frame;
      try {
        frame = control.reader.next();
        if (frame && !carry(channel, *frame)) continue;
      } catch (const std::exception& error) {
        // This process's own: an accounting that cannot be had over a stream, no descriptors left.
        log(LogLevel::error, error.what());
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

  // Makes channels of a frame's descriptors. False when the frame shall not go: nobody would
  // answer.
  bool carry(ChannelId control, Frame& frame) {
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

  // -- From the guest to the host ----------------------------------------------------------------

  void opened(ChannelId channel, ChannelKind kind, ChannelId related) override {
    const Link* listener = find(related);
    sys::UniqueFd socket;
    if (listener != nullptr && listener->kind == ChannelKind::listener && listener->socket) {
      try {
        socket = sys::connect_hidden(listener->socket.get());
      } catch (const std::system_error& error) {
        log(LogLevel::warning, fmt::format("a program's connection is refused: {}", error.what()));
      }
    }
    if (!socket) return drop(channel);
    add(channel, kind, related, std::move(socket));
  }

  void closed(ChannelId channel, ChannelKind kind) override {
    if (kind != ChannelKind::control) return;
    controls_.erase(channel);
    for (const ChannelId listener : related_to(channel, ChannelKind::listener)) {
      end_without_data(listener, *find(listener));
    }
  }

  // -- What callers see --------------------------------------------------------------------------

  void check_alive() const {
    if (!ended_) return;
    if (other_version_) throw_another_build(options_.id);
    throw SandboxUnavailable(fmt::format("the sandbox cannot be reached: {}", *ended_),
                             "dispose it and acquire a new one");
  }

  const MultiplexedStreamOptions options_;
  std::map<ChannelId, Control> controls_;
  sys::UniqueFd wake_ = sys::make_event();
  // Readable once the guest is there or will never be.
  sys::UniqueFd settled_ = sys::make_event();
  std::atomic<bool> closing_ = false;

  mutable std::mutex mutex_;
  std::vector<sys::UniqueFd> new_;
  std::size_t open_ = 0;
  std::size_t limit_ = 0;
  std::optional<std::string> ended_;
  bool other_version_ = false;
  // Last: it uses all of the others.
  std::thread thread_;
};

MultiplexedStream::MultiplexedStream(StreamEnd stream, MultiplexedStreamOptions options)
    : loop_(std::make_unique<Loop>(std::move(stream), std::move(options))) {}

MultiplexedStream::~MultiplexedStream() {
  close();
  // The thread is the parent's.
  if (!owner_.is_current()) static_cast<void>(loop_.release());
}

void MultiplexedStream::await_ready(const CallControl& control) const {
  loop_->await_ready(control);
}

sys::UniqueFd MultiplexedStream::connect(const CallControl& control) {
  loop_->await_ready(control);
  return loop_->connect();
}

bool MultiplexedStream::alive() const { return loop_->alive(); }

void MultiplexedStream::close() noexcept {
  if (owner_.is_current()) loop_->close();
}

}  // namespace casemate::guest
