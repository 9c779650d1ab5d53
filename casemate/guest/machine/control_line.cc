#include "casemate/guest/machine/control_line.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

constexpr std::size_t kMaxLine = 64 * 1024;
constexpr std::chrono::seconds kPatience{60};
// Before the answer to a command: of all the time since the last one.
constexpr int kMostEvents = 10'000;
// Between two questions whether something has come about, for which there is no event that could be
// waited for without reading more of what it says.
constexpr std::chrono::milliseconds kPause{1};
constexpr std::size_t kShown = 200;

bool holds(std::string_view text, std::string_view what) { return text.find(what) != text.npos; }

}  // namespace

ControlLine::ControlLine(sys::UniqueFd socket) : socket_(std::move(socket)) {
  if (!holds(read_line(), "\"QMP\"")) sys::throw_error(EPROTO, "hearing the hypervisor's greeting");
  command(R"({"execute":"qmp_capabilities"})");
}

void ControlLine::restore(int saved) {
  command(R"({"execute":"getfd","arguments":{"fdname":"saved"}})", saved);
  command(R"({"execute":"migrate-incoming","arguments":{"uri":"fd:saved"}})");
  wait_until(R"({"execute":"query-status"})", "\"status\": \"paused\"",
             "\"status\": \"internal-error\"");
  go_on();
}

void ControlLine::save(int saved) {
  command(R"({"execute":"stop"})");
  command(R"({"execute":"getfd","arguments":{"fdname":"saved"}})", saved);
  command(R"({"execute":"migrate","arguments":{"uri":"fd:saved"}})");
  wait_until(R"({"execute":"query-migrate"})", "\"status\": \"completed\"",
             "\"status\": \"failed\"");
}

void ControlLine::go_on() { command(R"({"execute":"cont"})"); }

void ControlLine::wait_until(std::string_view query, std::string_view done,
                             std::string_view failed) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const std::string answer = command(query);
    if (holds(answer, done)) return;
    if (holds(answer, failed)) sys::throw_error(EREMOTEIO, answer.substr(0, kShown));
    if (std::chrono::steady_clock::now() >= until) {
      sys::throw_error(ETIMEDOUT, "waiting for a machine's state");
    }
    sys::poll_until({}, std::chrono::steady_clock::now() + kPause);
  }
}

std::string ControlLine::command(std::string_view text, int descriptor) {
  std::string line(text);
  line += '\n';
  // A command is far smaller than what a socket takes.
  const std::span<const int> descriptors(&descriptor, descriptor < 0 ? 0 : 1);
  if (sys::send_message(socket_.get(), line, descriptors, sys::Blocking::no) != line.size()) {
    sys::throw_error(EPIPE, "telling the hypervisor");
  }
  // What it says besides are events; it may be the guest's by now, and say them without end.
  for (int events = 0; events < kMostEvents; ++events) {
    std::string answer = read_line();
    if (answer.starts_with("{\"return\"")) return answer;
    if (answer.starts_with("{\"error\"")) {
      sys::throw_error(EREMOTEIO,
                       line.substr(0, line.size() - 1) + ": " + answer.substr(0, kShown));
    }
    if (!answer.starts_with("{\"timestamp\"")) break;
  }
  sys::throw_error(EPROTO, "hearing the hypervisor");
}

std::string ControlLine::read_line() {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const std::size_t end = buffer_.find('\n');
    if (end != buffer_.npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (buffer_.size() >= kMaxLine) sys::throw_error(EPROTO, "hearing the hypervisor");
    pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (sys::poll_until({&entry, 1}, until) == 0) {
      sys::throw_error(ETIMEDOUT, "hearing the hypervisor");
    }
    std::array<char, 4096> part{};
    const ssize_t count = recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count < 0) sys::throw_errno("hearing the hypervisor");
    if (count == 0) sys::throw_error(EPIPE, "hearing the hypervisor");
    buffer_.append(part.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace casemate::guest
