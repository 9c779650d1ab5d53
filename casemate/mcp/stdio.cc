#include "casemate/mcp/stdio.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/mcp/line_reader.h"
#include "casemate/sys/poll.h"

namespace casemate::mcp {
namespace {

using std::chrono::milliseconds;

// For quick requests after the end of the input, and for calls to come back after that; together
// under a second.
constexpr milliseconds kGrace{300};
constexpr milliseconds kStopPatience{500};

constexpr std::size_t kReadBytes = 64 * 1024;
// PIPE_BUF: what a pipe that is writable takes at once.
constexpr std::size_t kWriteBytes = 4096;

bool is_socket(int descriptor) {
  struct stat status{};
  return fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

// The messages on their way out. Filled from any thread, emptied by the one that serves.
class PendingOutput final : public Outlet {
 public:
  explicit PendingOutput(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  void send(Outgoing message) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      if (message.kind == Outgoing::Kind::notification && bytes_ > max_bytes_) return;
      message.text += '\n';
      bytes_ += message.text.size();
      messages_.push_back(std::move(message.text));
    }
    sys::raise_event(wake_.get());
  }

  void finished() noexcept override { sys::raise_event(wake_.get()); }

  bool has_room() override { return !is_full(); }

  bool wait_for_room(const std::stop_token& stop) override {
    std::unique_lock lock(mutex_);
    return room_.wait(lock, stop, [this] { return closed_ || bytes_ <= max_bytes_; });
  }

  int wake() const { return wake_.get(); }

  bool is_full() const {
    const std::lock_guard lock(mutex_);
    return bytes_ > max_bytes_;
  }
  bool is_empty() const {
    const std::lock_guard lock(mutex_);
    return bytes_ == 0;
  }

  // Some of the oldest message; empty when there is none. Valid until `written`.
  std::string_view front() const {
    const std::lock_guard lock(mutex_);
    if (messages_.empty()) return {};
    // The message stays where it is when others are appended to the deque.
    return std::string_view(messages_.front()).substr(written_, kWriteBytes);
  }

  void written(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ -= bytes;
    if (bytes_ <= max_bytes_) room_.notify_all();
    written_ += bytes;
    if (written_ < messages_.front().size()) return;
    messages_.pop_front();
    written_ = 0;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    messages_.clear();
    bytes_ = 0;
    room_.notify_all();
  }

 private:
  const std::size_t max_bytes_;
  const sys::UniqueFd wake_ = sys::make_event();
  mutable std::mutex mutex_;
  std::condition_variable_any room_;
  std::deque<std::string> messages_;
  std::size_t written_ = 0;
  std::size_t bytes_ = 0;
  bool closed_ = false;
};

class StdioClient {
 public:
  StdioClient(const Server& server, const StdioOptions& options)
      : server_(server),
        options_(options),
        lines_(server.message_bounds().max_bytes),
        output_(std::make_shared<PendingOutput>(options.max_pending_bytes)),
        peer_(server.connect({.identity = "stdio", .is_one_client = true})) {}

  StdioEnd serve(const std::stop_token& stop) {
    const std::stop_callback on_stop(stop, [this] { sys::raise_event(stop_event_.get()); });
    const StdioEnd end = serve_until_the_end();
    if (end == StdioEnd::end_of_input) answer_what_is_quick();
    peer_->close();
    output_->close();
    return end;
  }

 private:
  StdioEnd serve_until_the_end() {
    for (;;) {
      const bool full = take_lines();
      std::array<pollfd, 4> entries = entries_for(full);
      sys::poll_until(entries, std::nullopt);
      if (entries[3].revents != 0) return StdioEnd::stopped;
      if (!pump_output(entries)) return StdioEnd::output_closed;
      if (entries[0].revents == 0) continue;
      // Of a client that does not read, only its end is noticed.
      if (full && (entries[0].revents & (POLLHUP | POLLERR)) != 0) return StdioEnd::end_of_input;
      if (!full && !read_input()) return StdioEnd::end_of_input;
    }
  }

  std::array<pollfd, 4> entries_for(bool full) const {
    const bool pending = !output_->is_empty();
    return {pollfd{options_.in, full ? short{0} : short{POLLIN}, 0},
            // Without anything to write: to notice that nobody reads any more.
            pollfd{options_.out, pending ? short{POLLOUT} : short{0}, 0},
            pollfd{output_->wake(), POLLIN, 0}, pollfd{stop_event_.get(), POLLIN, 0}};
  }

  // Whether there is too much to write to go on reading.
  bool take_lines() {
    while (!output_->is_full()) {
      const auto line = lines_.next();
      if (!line) return false;
      take(*line);
    }
    return true;
  }

  void take(const LineReader::Line& line) {
    if (line.too_long) {
      peer_->receive(oversized_message(server_.message_bounds()), output_);
    } else if (line.text.find_first_not_of(" \t\r") != line.text.npos) {
      peer_->receive(read_message(line.text, server_.message_bounds()), output_);
    }
  }

  // False at the end.
  bool read_input() {
    std::array<char, kReadBytes> bytes;
    const ssize_t count = ::read(options_.in, bytes.data(), bytes.size());
    if (count > 0) lines_.feed({bytes.data(), static_cast<std::size_t>(count)});
    if (count >= 0) return count > 0;
    return errno == EINTR || errno == EAGAIN;
  }

  // False when nobody reads any more.
  bool pump_output(const std::array<pollfd, 4>& entries) {
    if (entries[2].revents != 0) {
      std::uint64_t ignored = 0;
      if (::read(output_->wake(), &ignored, sizeof ignored) < 0) return true;
    }
    const short events = entries[1].revents;
    if ((events & (POLLERR | POLLNVAL)) != 0) return false;
    if ((events & POLLOUT) == 0) return (events & POLLHUP) == 0;
    const std::string_view piece = output_->front();
    if (piece.empty()) return true;
    const ssize_t count = write_some(piece);
    // A file on FUSE may take nothing and say no error, as often as it is asked.
    if (count == 0) return false;
    if (count > 0) output_->written(static_cast<std::size_t>(count));
    return count > 0 || errno == EINTR || errno == EAGAIN;
  }

  ssize_t write_some(std::string_view piece) {
    // A socket does not promise to take so much; it can be told not to wait.
    if (is_socket_) {
      return ::send(options_.out, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return ::write(options_.out, piece.data(), piece.size());
  }

  void answer_what_is_quick() {
    const auto until = std::chrono::steady_clock::now() + kGrace;
    while (const auto line = lines_.next()) take(*line);
    if (const auto line = lines_.rest()) take(*line);
    while (peer_->in_flight() > 0 || !output_->is_empty()) {
      std::array<pollfd, 4> entries = entries_for(true);
      entries[0].fd = -1;
      if (sys::poll_until(entries, until) == 0 || entries[3].revents != 0) return;
      if (!pump_output(entries)) return;
    }
  }

  const Server& server_;
  const StdioOptions options_;
  const sys::UniqueFd stop_event_ = sys::make_event();
  LineReader lines_;
  const std::shared_ptr<PendingOutput> output_;
  const std::shared_ptr<Peer> peer_;
  const bool is_socket_ = is_socket(options_.out);
};

}  // namespace

StdioEnd serve_stdio(const Server& server, const StdioOptions& options,
                     const std::stop_token& stop) {
  return StdioClient(server, options).serve(stop);
}

StdioEnd serve(ServerOptions options, const StdioOptions& stdio, const std::stop_token& stop) {
  const Server server(std::move(options));
  const StdioEnd end = serve_stdio(server, stdio, stop);
  server.stop(kStopPatience);
  return end;
}

}  // namespace casemate::mcp
