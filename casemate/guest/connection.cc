#include "casemate/guest/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "casemate/core/hints.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {

StopEvent::StopEvent(const std::stop_token& token) {
  if (!token.stop_possible()) return;
  event_ = sys::make_event();
  callback_.emplace(token, Raise{event_.get()});
}

void throw_guest_lied(std::string_view what) {
  throw SandboxUnavailable(
      fmt::format("the sandbox broke the protocol between host and guest: {}", what),
      "dispose it and acquire a new one");
}

void throw_another_build(std::string_view sandbox_id) {
  throw SandboxUnavailable(
      fmt::format("the sandbox {} was made by another build of Casemate", sandbox_id),
      "acquiring its key (casemate run) replaces it, disposing it (casemate rm) ends it");
}

std::string no_resources_hint(int error) {
  switch (error) {
    case EAGAIN:
      return "as many processes run as its user may have (ulimit -u of the process that made it): "
             "raise that, or let others end";
    case EMFILE:
      return kDescriptorsHint;
    default:
      return "";
  }
}

void throw_guest_gone() {
  throw SandboxUnavailable("the sandbox closed its connection before it had answered",
                           "it has ended or was ended; acquire a new one");
}

void throw_timed_out(const CallControl& control) {
  if (control.deadline && sys::SteadyTime::clock::now() >= *control.deadline) {
    throw SandboxTimeout("the sandbox did not answer by the call's deadline");
  }
  throw SandboxTimeout("the sandbox has said nothing for too long");
}

std::pair<sys::UniqueFd, sys::UniqueFd> make_connection() try {
  return sys::socket_pair(sys::SocketType::stream);
} catch (const std::system_error& error) {
  throw SandboxUnavailable(fmt::format("a call cannot be connected to: {}", error.what()),
                           no_resources_hint(error.code().value()));
}

bool is_silent(int connection) {
  std::array<pollfd, 1> entries{pollfd{connection, POLLIN | POLLRDHUP, 0}};
  return sys::poll_until(entries, sys::SteadyTime::clock::now()) == 0;
}

bool has_hung_up(int connection) {
  std::array<pollfd, 1> entries{pollfd{connection, POLLRDHUP, 0}};
  return sys::poll_until(entries, sys::SteadyTime::clock::now()) != 0;
}

Connection::Connection(sys::UniqueFd socket, std::chrono::nanoseconds silence)
    : socket_(std::move(socket)),
      silence_(silence),
      reader_(socket_.get()),
      writer_(socket_.get()) {}

void Connection::put(FrameType type, std::string_view payload, std::span<const int> descriptors) {
  if (broken_) throw_guest_gone();
  try {
    if (descriptors.empty()) {
      writer_.send(wire(type), payload);
    } else {
      writer_.put(wire(type), payload, descriptors);
      writer_.flush();
    }
  } catch (const std::system_error&) {
    broken_ = true;
    throw_guest_gone();
  }
}

void Connection::flush(const CallControl& control) {
  if (broken_) throw_guest_gone();
  while (!send_queued()) {
    try {
      wait(POLLOUT, control);
    } catch (...) {
      broken_ = true;
      throw;
    }
  }
}

// Whether everything is sent.
bool Connection::send_queued() try { return writer_.flush(); } catch (const std::system_error&) {
  broken_ = true;
  throw_guest_gone();
}

Frame Connection::receive(const CallControl& control) {
  while (true) {
    try {
      if (std::optional<Frame> frame = reader_.next()) return std::move(*frame);
    } catch (const ProtocolError& error) {
      throw_guest_lied(error.what());
    } catch (const std::system_error&) {
      throw_guest_gone();
    }
    if (reader_.closed()) throw_guest_gone();
    wait(POLLIN, control);
  }
}

void Connection::wait(short events, const CallControl& control) {
  const StopEvent stop(control.stop);
  std::array<pollfd, 2> entries{pollfd{socket_.get(), events, 0}, pollfd{stop.fd(), POLLIN, 0}};
  sys::SteadyTime until = sys::deadline_after(silence_);
  if (control.deadline) until = std::min(until, *control.deadline);
  if (sys::poll_until(entries, until) == 0) throw_timed_out(control);
  if (entries[1].revents != 0) throw SandboxCancelled("the call was cancelled by its caller");
}

}  // namespace casemate::guest
