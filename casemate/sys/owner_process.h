#pragma once

#include <unistd.h>

namespace casemate::sys {

// Remembers the process that made it. A destructor that ends something shared with other processes
// asks it first: in a forked child of the host the resources are the parent's.
class OwnerProcess {
 public:
  OwnerProcess() noexcept : pid_(::getpid()) {}

  bool is_current() const noexcept { return ::getpid() == pid_; }

 private:
  pid_t pid_;
};

}  // namespace casemate::sys
