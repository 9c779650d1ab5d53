#include "apps/casemate/server_log.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstddef>
#include <mutex>
#include <string>

#include "apps/casemate/console.h"
#include "apps/casemate/refusal.h"

namespace casemate::app {

namespace {

bool is_writable(int fd) {
  pollfd entry{.fd = fd, .events = POLLOUT, .revents = 0};
  return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLOUT) != 0;
}

}  // namespace

struct ServerLog::State {
  explicit State(LogLevel at_least) : least(at_least) {}

  const LogLevel least;
  std::mutex mutex;
  std::uint64_t dropped = 0;

  void write(std::string_view text) noexcept {
    const std::lock_guard lock(mutex);
    if (!is_writable(STDERR_FILENO)) {
      ++dropped;
      return;
    }
    // `say` writes at once what a pipe that is ready takes at once (console.h: one line).
    if (dropped > 0) {
      app::say(fmt::format("{} lines were dropped: nobody read them", dropped));
      dropped = 0;
      if (!is_writable(STDERR_FILENO)) {
        ++dropped;
        return;
      }
    }
    app::say(text);
  }
};

ServerLog::ServerLog(LogLevel least) : state_(std::make_shared<State>(least)) {}

void ServerLog::say(std::string_view text) noexcept { state_->write(text); }

Log ServerLog::log() const {
  return [state = state_](LogLevel level, std::string_view text) {
    if (level < state->least) return;
    // Less than PIPE_BUF with what `say` puts around it.
    constexpr std::size_t kMaxBytes = 1000;
    state->write(fmt::format("{}: {}", to_string(level),
                             options_named_here(std::string(text.substr(0, kMaxBytes)))));
  };
}

}  // namespace casemate::app
