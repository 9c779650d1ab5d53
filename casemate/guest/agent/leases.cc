#include "casemate/guest/agent/leases.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/error.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// Far above what processes of one host hold; bounds this process's memory.
constexpr std::size_t kMaxLeases = 4096;
// A century, so that no sum with the time of now leaves its type.
constexpr std::uint64_t kLongestIdleMs = std::uint64_t{100} * 365 * 24 * 3600 * 1000;

// What an event is about, beside the leases by number.
constexpr std::uint64_t kSocketEvent = 0;
constexpr std::uint64_t kTimerEvent = 1;
constexpr std::uint64_t kFirstLease = 2;

}  // namespace

Leases::Leases(UniqueFd socket, UniqueFd first, std::uint64_t keep_idle_ms)
    : socket_(std::move(socket)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      // The clock that also counts while the machine sleeps.
      timer_(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
      next_(kFirstLease) {
  if (!events_) sys::throw_errno("making an epoll set");
  if (!timer_) sys::throw_errno("making a timer");
  listener_.emplace(socket_.get(), events_.get(), kSocketEvent);
  await(timer_.get(), kTimerEvent);
  if (fcntl(first.get(), F_SETFL, fcntl(first.get(), F_GETFL) | O_NONBLOCK) < 0) {
    sys::throw_errno("taking the first lease");
  }
  take({.connection = std::move(first), .keep_idle_ms = keep_idle_ms, .granted = true});
}

void Leases::start_listening() { sys::start_listening(socket_.get()); }

void Leases::await(int descriptor, std::uint64_t subject) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = subject;
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) < 0) {
    sys::throw_errno("waiting for a lease");
  }
}

void Leases::take(Lease lease) {
  await(lease.connection.get(), next_);
  leases_.emplace(next_++, std::move(lease));
}

void Leases::handle() {
  std::array<epoll_event, 64> ready{};
  const int count = epoll_wait(events_.get(), ready.data(), ready.size(), 0);
  if (count < 0 && errno != EINTR) sys::throw_errno("waiting for leases");
  bool timer_rang = false;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t subject = ready[static_cast<std::size_t>(i)].data.u64;
    if (subject == kSocketEvent) {
      accept_one();
    } else if (subject == kTimerEvent) {
      timer_rang = true;
    } else if (const auto found = leases_.find(subject); found != leases_.end()) {
      hear(found->second);
    }
  }
  drop_closed();
  if (timer_rang) time_is_up();
}

void Leases::accept_one() {
  UniqueFd connection = listener_->accept(sys::Blocking::no);
  if (!connection || leases_.size() >= kMaxLeases) return;
  take({.connection = std::move(connection), .keep_idle_ms = kNoWish});
}

void Leases::hear(Lease& lease) {
  // Written as one and read as one, so it never comes in parts.
  LeaseRequest request{};
  const ssize_t count = read(lease.connection.get(), &request, sizeof request);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count == sizeof request && request.type == kLeaseRequest) {
    lease.keep_idle_ms = request.keep_idle_ms;
    if (lease.granted) return;
    const char answer = kLeaseGranted;
    if (sys::try_send_value(lease.connection.get(), answer)) {
      lease.granted = true;
      set_timer(std::chrono::milliseconds{0});
      return;
    }
  }
  lease.closed = true;
}

void Leases::drop_closed() {
  bool one_was_granted = false;
  std::erase_if(leases_, [&](const auto& entry) {
    const Lease& lease = entry.second;
    if (lease.closed && lease.granted) {
      one_was_granted = true;
      if (lease.keep_idle_ms != kNoWish) keep_idle_ms_ = lease.keep_idle_ms;
    }
    // A process that was just cloned may still have a copy, so that closing it is not enough.
    if (lease.closed) {
      epoll_ctl(events_.get(), EPOLL_CTL_DEL, lease.connection.get(), nullptr);
    }
    return lease.closed;
  });
  if (!one_was_granted || granted() > 0) return;
  if (keep_idle_ms_ > 0) {
    set_timer(std::chrono::milliseconds(std::min(keep_idle_ms_, kLongestIdleMs)));
  } else {
    over_ = true;
  }
}

std::size_t Leases::granted() const {
  return static_cast<std::size_t>(std::count_if(
      leases_.begin(), leases_.end(), [](const auto& entry) { return entry.second.granted; }));
}

// 0 disarms.
void Leases::set_timer(std::chrono::milliseconds after) {
  itimerspec value{};
  value.it_value.tv_sec = after.count() / 1000;
  value.it_value.tv_nsec = after.count() % 1000 * 1000000;
  if (timerfd_settime(timer_.get(), 0, &value, nullptr) < 0) sys::throw_errno("setting a timer");
}

void Leases::time_is_up() {
  std::uint64_t expirations = 0;
  if (read(timer_.get(), &expirations, sizeof expirations) < 0) return;
  if (granted() == 0) over_ = true;
}

}  // namespace casemate::guest
