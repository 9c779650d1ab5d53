#include "apps/casemate/stop_requests.h"

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "apps/casemate/console.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/thread.h"

namespace casemate::app {

namespace {

sigset_t stopping_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

// The signal's default action, now.
void end_process_by(int number) {
  static_cast<void>(std::signal(number, SIG_DFL));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  static_cast<void>(::raise(number));
}

}  // namespace

StopRequests::StopRequests() : finished_(sys::make_event()) {
  const sigset_t set = stopping_signals();
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    sys::throw_error(error, "blocking signals");
  }
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) sys::throw_errno("signalfd");
  // What the thread will wait by, tried where a refusal can still be told.
  pollfd entry{.fd = finished_.get(), .events = POLLIN, .revents = 0};
  sys::poll_until({&entry, 1}, sys::SteadyTime{});
  waiter_ = sys::start_thread([this] { wait_for_requests(); });
}

StopRequests::~StopRequests() {
  sys::raise_event(finished_.get());
  waiter_.join();
}

std::optional<int> StopRequests::exit_status() const {
  const int status = exit_status_.load();
  return status == 0 ? std::nullopt : std::optional(status);
}

void StopRequests::request(int exit_status) {
  int none = 0;
  exit_status_.compare_exchange_strong(none, exit_status);
  source_.request_stop();
}

void StopRequests::wait_for_requests() {
  // Asked for nothing, a pipe without a reader still reports POLLERR.
  std::array<pollfd, 3> entries = {{{.fd = finished_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = STDOUT_FILENO, .events = 0, .revents = 0}}};
  bool signalled = false;
  for (;;) {
    sys::poll_until(entries, std::nullopt);
    if (entries[0].revents != 0) return;
    if (entries[2].revents != 0) {
      entries[2].fd = -1;
      request(kExitOutputClosed);
    }
    signalfd_siginfo info = {};
    if (::read(signals_.get(), &info, sizeof info) != sizeof info) continue;
    const int number = static_cast<int>(info.ssi_signo);
    if (signalled) end_process_by(number);
    signalled = true;
    request(128 + number);
  }
}

}  // namespace casemate::app
