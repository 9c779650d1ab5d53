#pragma once

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// One end of a stream: what is read from, and what is written to (the same open file twice where it
// is one, as a socket or a serial port). Anything that epoll can wait for. Both become
// non-blocking, for everybody who shares the open file.
struct StreamEnd {
  sys::UniqueFd in;
  sys::UniqueFd out;

  // Both of one descriptor. Throws `std::system_error`.
  static StreamEnd of(sys::UniqueFd both);
};

}  // namespace casemate::guest
