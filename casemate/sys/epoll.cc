#include "casemate/sys/epoll.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>

#include "casemate/sys/error.h"

namespace casemate::sys {
namespace {

constexpr std::size_t kMaxEvents = 16;

void control(int epoll, int operation, int fd, std::uint64_t id, Trigger trigger) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  if (trigger == Trigger::once) event.events |= EPOLLONESHOT;
  event.data.u64 = id;
  if (epoll_ctl(epoll, operation, fd, &event) < 0) throw_errno("epoll_ctl");
}

}  // namespace

Epoll::Epoll() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw_errno("epoll_create1");
}

void Epoll::add(int fd, std::uint64_t id, Trigger trigger) {
  control(epoll_.get(), EPOLL_CTL_ADD, fd, id, trigger);
}

void Epoll::rearm(int fd, std::uint64_t id) {
  control(epoll_.get(), EPOLL_CTL_MOD, fd, id, Trigger::once);
}

void Epoll::remove(int fd) noexcept { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::size_t Epoll::take(std::span<std::uint64_t> ids, int milliseconds) {
  std::array<epoll_event, kMaxEvents> events{};
  const int room = static_cast<int>(std::min(ids.size(), events.size()));
  const int ready = epoll_wait(epoll_.get(), events.data(), room, milliseconds);
  if (ready < 0 && errno != EINTR) throw_errno("epoll_wait");
  const auto count = static_cast<std::size_t>(std::max(ready, 0));
  for (std::size_t index = 0; index < count; ++index) ids[index] = events[index].data.u64;
  return count;
}

std::size_t Epoll::wait(std::span<std::uint64_t> ids) {
  while (true) {
    if (const std::size_t count = take(ids, -1)) return count;
  }
}

std::size_t Epoll::look(std::span<std::uint64_t> ids) { return take(ids, 0); }

UniqueFd make_counting_event() {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  if (!event) throw_errno("eventfd");
  return event;
}

bool take_one(int event) noexcept {
  std::uint64_t count = 0;
  return read(event, &count, sizeof count) == sizeof count;
}

UniqueFd make_timer() {
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) throw_errno("timerfd_create");
  return timer;
}

void set_timer(int timer, std::optional<SteadyTime> at) {
  itimerspec setting{};
  if (at) {
    // libstdc++'s steady clock is CLOCK_MONOTONIC. A zero would mean "never".
    const auto since =
        std::max(std::chrono::nanoseconds{1}, std::chrono::nanoseconds{at->time_since_epoch()});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
    setting.it_value.tv_sec = static_cast<time_t>(seconds.count());
    setting.it_value.tv_nsec = static_cast<long>((since - seconds).count());
  }
  if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, nullptr) < 0) {
    throw_errno("timerfd_settime");
  }
}

}  // namespace casemate::sys
