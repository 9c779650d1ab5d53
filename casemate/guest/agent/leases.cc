#include "casemate/guest/agent/leases.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

}  // namespace

Leases::Leases(UniqueFd socket, UniqueFd first, std::uint64_t keep_idle_ms)
    : socket_(std::move(socket)),
      // The clock that also counts while the machine sleeps.
      timer_(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) sys::throw_errno("making a timer");
  if (fcntl(first.get(), F_SETFL, fcntl(first.get(), F_GETFL) | O_NONBLOCK) < 0) {
    sys::throw_errno("taking the first lease");
  }
  leases_.push_back(
      {.connection = std::move(first), .keep_idle_ms = keep_idle_ms, .granted = true});
}

void Leases::start_listening() { sys::start_listening(socket_.get()); }

void Leases::add_to(std::vector<pollfd>& entries) const {
  entries.push_back({.fd = timer_.get(), .events = POLLIN, .revents = 0});
  entries.push_back({.fd = socket_.get(), .events = POLLIN, .revents = 0});
  for (const Lease& lease : leases_) {
    entries.push_back({.fd = lease.connection.get(), .events = POLLIN, .revents = 0});
  }
}

void Leases::heed(const std::vector<pollfd>& entries, std::size_t from) {
  const std::size_t known = leases_.size();
  if (entries[from + 1].revents != 0) accept_one();
  for (std::size_t i = 0; i < known; ++i) {
    if (entries[from + 2 + i].revents != 0) hear(leases_[i]);
  }
  drop_closed();
  if (entries[from].revents != 0) time_is_up();
}

void Leases::accept_one() {
  UniqueFd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection || leases_.size() >= kMaxLeases) return;
  leases_.push_back({.connection = std::move(connection), .keep_idle_ms = kNoWish});
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
    if (send(lease.connection.get(), &answer, 1, MSG_NOSIGNAL) == 1) {
      lease.granted = true;
      set_timer(std::chrono::milliseconds{0});
      return;
    }
  }
  lease.closed = true;
}

void Leases::drop_closed() {
  bool one_was_granted = false;
  std::erase_if(leases_, [&](const Lease& lease) {
    if (lease.closed && lease.granted) {
      one_was_granted = true;
      if (lease.keep_idle_ms != kNoWish) keep_idle_ms_ = lease.keep_idle_ms;
    }
    return lease.closed;
  });
  if (!one_was_granted || has_granted()) return;
  if (keep_idle_ms_ > 0) {
    set_timer(std::chrono::milliseconds(std::min(keep_idle_ms_, kLongestIdleMs)));
  } else {
    over_ = true;
  }
}

bool Leases::has_granted() const {
  return std::any_of(leases_.begin(), leases_.end(),
                     [](const Lease& lease) { return lease.granted; });
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
  if (!has_granted()) over_ = true;
}

}  // namespace casemate::guest
