#pragma once

#include <atomic>
#include <optional>
#include <stop_token>
#include <thread>

#include "casemate/sys/unique_fd.h"

namespace casemate::app {

// What ends a run early, as a stop request, while this lives: SIGINT, SIGTERM, SIGHUP, and whoever
// read our standard output going away.
//
// The signals are blocked in the thread that makes it (so make it before any other thread) and
// taken by a thread of its own, because a stop request runs callbacks, which a signal handler must
// not. One that the caller of `casemate` had ignored (nohup) stays ignored. A second signal ends
// this process at once: sandboxes end by themselves when it is gone. Blocked signals stay so.
class StopRequests {
 public:
  StopRequests();
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  // The exit status for what came first: 130, 143, 129 by signal, 141 for a closed output.
  std::optional<int> exit_status() const;

 private:
  void wait_for_requests();
  void request(int exit_status);

  std::stop_source source_;
  std::atomic<int> exit_status_ = 0;
  sys::UniqueFd signals_;
  sys::UniqueFd finished_;
  std::thread waiter_;
};

}  // namespace casemate::app
