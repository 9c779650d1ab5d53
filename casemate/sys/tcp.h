#pragma once

// TCP on this machine's own loopback.

#include <cstdint>

#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

struct LoopbackListener {
  // Non-blocking and close-on-exec; for `accept_connection` (socket.h).
  UniqueFd socket;
  std::uint16_t port = 0;
};

// Listens on 127.0.0.1, at a port that the kernel chose. Throws `std::system_error`.
LoopbackListener listen_on_loopback();

}  // namespace casemate::sys
