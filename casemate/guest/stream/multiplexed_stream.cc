#include "casemate/guest/stream/multiplexed_stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
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
#include "casemate/guest/stream/host_bridge.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/signals.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/thread.h"

namespace casemate::guest {
namespace {

constexpr auto kGoodbyePatience = std::chrono::seconds(1);

}  // namespace

class MultiplexedStream::Loop : public HostBridge {
 public:
  Loop(StreamEnd stream, MultiplexedStreamOptions options)
      : HostBridge(std::move(stream), {.max_guest_connections = options.max_guest_connections,
                                       .directory = options.directory}),
        options_(std::move(options)) {
    wake_by(wake_.get());
    const sys::SignalsBlocked blocked;
    thread_ = sys::start_thread([this] { run(); });
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
    end_controls();
    sys::raise_event(settled_.get());
    if (!asked) log(LogLevel::warning, "the stream has ended: " + why);
  }

  void refused(std::string_view why) override { log(LogLevel::warning, why); }

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
    // Before the look at what it is raised for.
    std::uint64_t times = 0;
    if (read(wake_.get(), &times, sizeof times) < 0 && errno != EAGAIN && errno != EINTR) {
      sys::throw_errno("hearing of new connections");
    }
    std::vector<sys::UniqueFd> connections;
    {
      const std::lock_guard lock(mutex_);
      connections.swap(new_);
      open_ += connections.size();
    }
    for (sys::UniqueFd& socket : connections) add_control(std::move(socket));
  }

  // -- What callers see --------------------------------------------------------------------------

  void check_alive() const {
    if (!ended_) return;
    if (other_version_) throw_another_build(options_.id);
    throw SandboxUnavailable(fmt::format("the sandbox cannot be reached: {}", *ended_),
                             "dispose it and acquire a new one");
  }

  const MultiplexedStreamOptions options_;
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
