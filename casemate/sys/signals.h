#pragma once

#include <signal.h>

namespace casemate::sys {

// Blocks signals of this thread for as long as it lives. A thread started meanwhile keeps them
// blocked, so that a process's signals arrive where its owner expects them. Those that report a
// fault of the thread's own are left alone.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace casemate::sys
