#include "casemate/guest/agent/patient_listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "casemate/sys/error.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

constexpr long kMomentNs = 50'000'000;

UniqueFd make_set() {
  UniqueFd events(epoll_create1(EPOLL_CLOEXEC));
  if (!events) sys::throw_errno("making an epoll set");
  return events;
}

}  // namespace

PatientListener::PatientListener(int socket, int events, std::uint64_t data)
    : socket_(socket),
      events_(events),
      data_(data),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) sys::throw_errno("making a timer");
  report(timer_.get(), EPOLLIN, EPOLL_CTL_ADD);
  report(socket_, EPOLLIN, EPOLL_CTL_ADD);
}

PatientListener::PatientListener(int socket) : PatientListener(socket, make_set()) {}

PatientListener::PatientListener(int socket, UniqueFd events)
    : PatientListener(socket, events.get(), 0) {
  own_events_ = std::move(events);
}

UniqueFd PatientListener::accept(sys::Blocking connection) {
  if (paused_) {
    std::uint64_t times = 0;
    if (read(timer_.get(), &times, sizeof times) != sizeof times) return {};
    paused_ = false;
    report(socket_, EPOLLIN, EPOLL_CTL_MOD);
  }
  const int mode = connection == sys::Blocking::no ? SOCK_NONBLOCK : 0;
  UniqueFd accepted(accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | mode));
  if (!accepted && sys::is_shortage(errno)) pause();
  return accepted;
}

void PatientListener::report(int descriptor, std::uint32_t what, int act) const {
  epoll_event event{};
  event.events = what;
  event.data.u64 = data_;
  if (epoll_ctl(events_, act, descriptor, &event) < 0) {
    sys::throw_errno("waiting for connections");
  }
}

void PatientListener::pause() {
  itimerspec value{};
  value.it_value.tv_nsec = kMomentNs;
  if (timerfd_settime(timer_.get(), 0, &value, nullptr) < 0) sys::throw_errno("setting a timer");
  report(socket_, 0, EPOLL_CTL_MOD);
  paused_ = true;
}

}  // namespace casemate::guest
