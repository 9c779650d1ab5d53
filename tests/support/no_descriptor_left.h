#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "casemate/sys/unique_fd.h"

namespace casemate {

// While it lives this process gets no new descriptor.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    // Every lower number is taken.
    none.rlim_cur = static_cast<rlim_t>(sys::UniqueFd(dup(0)).get());
    setrlimit(RLIMIT_NOFILE, &none);
  }
  NoDescriptorLeft(const NoDescriptorLeft&) = delete;
  NoDescriptorLeft& operator=(const NoDescriptorLeft&) = delete;
  ~NoDescriptorLeft() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace casemate
