#include "casemate/local/keeper_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <stop_token>
#include <system_error>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::local {
namespace {

using sys::UniqueFd;

[[noreturn]] void refuse_late() {
  throw SandboxTimeout("the deadline came while a sandbox was being made");
}
[[noreturn]] void refuse_stopped() {
  throw SandboxCancelled("cancelled while a sandbox was being made");
}

[[noreturn]] void refuse_silent(std::chrono::nanoseconds silence) {
  throw SandboxTimeout(
      fmt::format("the keeper of sandboxes has said nothing for {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(silence).count()));
}

// Waits for the socket, that time or the stop, which it throws.
void wait_for(int socket, short events, sys::SteadyTime until, const CallControl& control) {
  // Where there is no descriptor left a sandbox can still be given up.
  UniqueFd stopped;
  if (control.stop.stop_possible()) stopped = sys::make_event();
  const std::stop_callback callback(control.stop, [&] { sys::raise_event(stopped.get()); });
  std::array<pollfd, 2> entries{pollfd{.fd = socket, .events = events, .revents = 0},
                                pollfd{.fd = stopped.get(), .events = POLLIN, .revents = 0}};
  sys::poll_until(entries, until);
  if (entries[0].revents == 0 && entries[1].revents != 0) refuse_stopped();
}

}  // namespace

void KeeperConnection::send(std::span<const char> message, std::span<const int> descriptors,
                            const CallControl& control) {
  const sys::SteadyTime patience = sys::SteadyTime::clock::now() + silence_;
  const sys::SteadyTime until = std::min(patience, control.deadline.value_or(patience));
  while (sys::send_message(socket_.get(), message, descriptors, sys::Blocking::no) == 0) {
    const sys::SteadyTime now = sys::SteadyTime::clock::now();
    if (control.deadline && now >= *control.deadline) refuse_late();
    if (now >= patience) {
      const std::lock_guard lock(mutex_);
      silent_ = true;
      refuse_silent(silence_);
    }
    wait_for(socket_.get(), POLLOUT, until, control);
  }
}

bool KeeperConnection::is_silent() {
  const std::lock_guard lock(mutex_);
  return silent_;
}

// Under the lock: all that is there.
void KeeperConnection::take_messages() {
  while (error_ == 0) {
    guest::KeeperAnswer answer{};
    sys::ReceivedMessage message;
    try {
      message = sys::receive_message(
          socket_.get(), {reinterpret_cast<char*>(&answer), sizeof answer}, sys::Blocking::no);
    } catch (const std::system_error& error) {
      error_ = error.code().value();
      return;
    }
    if (message.would_block) return;
    // Its end with requests unread is told first, once, before what it said.
    if (message.bytes == 0 && !std::exchange(was_reset_, true)) continue;
    if (message.bytes != sizeof answer) {
      error_ = message.bytes == 0 ? EPIPE : EPROTO;
      return;
    }
    heard_at_ = sys::SteadyTime::clock::now();
    silent_ = false;
    answer.text[sizeof answer.text - 1] = '\0';
    if (answer.number == 0) {
      last_words_ = answer;
    } else if (const auto found = answers_.find(answer.number); found != answers_.end()) {
      found->second.push_back(answer);
    }
  }
}

sys::SteadyTime KeeperConnection::end_of_patience(sys::SteadyTime since) const {
  return std::max(since, heard_at_) + silence_;
}

std::optional<guest::KeeperAnswer> KeeperConnection::last_words() {
  const std::lock_guard lock(mutex_);
  take_messages();
  return last_words_;
}

KeeperConnection::Waiting::Waiting(KeeperConnection& keeper, std::uint64_t number)
    : keeper_(keeper), number_(number) {
  const std::lock_guard lock(keeper_.mutex_);
  keeper_.answers_.try_emplace(number_);
}

KeeperConnection::Waiting::~Waiting() {
  const std::lock_guard lock(keeper_.mutex_);
  keeper_.answers_.erase(number_);
}

guest::KeeperAnswer KeeperConnection::Waiting::receive(const CallControl& control) {
  std::unique_lock lock(keeper_.mutex_);
  std::deque<guest::KeeperAnswer>& answers = keeper_.answers_.at(number_);
  const sys::SteadyTime began = sys::SteadyTime::clock::now();
  for (bool waited = false; answers.empty();) {
    if (keeper_.error_ != 0) sys::throw_error(keeper_.error_, "hearing from the keeper");
    const sys::SteadyTime patience = keeper_.end_of_patience(began);
    if (waited) {
      if (control.stop.stop_requested()) refuse_stopped();
      const sys::SteadyTime now = sys::SteadyTime::clock::now();
      if (control.deadline && now >= *control.deadline) refuse_late();
      if (now >= patience) {
        keeper_.silent_ = true;
        refuse_silent(keeper_.silence_);
      }
    }
    waited = true;
    const sys::SteadyTime until = std::min(patience, control.deadline.value_or(patience));
    if (keeper_.somebody_reads_) {
      const auto changed = [&] {
        return !answers.empty() || keeper_.error_ != 0 || !keeper_.somebody_reads_;
      };
      keeper_.heard_.wait_until(lock, control.stop, until, changed);
      continue;
    }
    keeper_.somebody_reads_ = true;
    lock.unlock();
    const auto done = [&] {
      lock.lock();
      keeper_.somebody_reads_ = false;
      keeper_.heard_.notify_all();
    };
    try {
      wait_for(keeper_.socket_.get(), POLLIN, until, control);
    } catch (...) {
      done();
      throw;
    }
    done();
    keeper_.take_messages();
  }
  const guest::KeeperAnswer answer = answers.front();
  answers.pop_front();
  return answer;
}

}  // namespace casemate::local
