#include "casemate/guest/agent/guest_io.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <exception>

#include "casemate/sys/poll.h"

namespace casemate::guest {

std::optional<Frame> await_frame(int connection, FrameReader& reader) {
  while (true) {
    std::optional<Frame> frame = reader.next();
    if (frame || reader.closed()) return frame;
    std::array<pollfd, 1> entries{pollfd{connection, POLLIN, 0}};
    sys::poll_until(entries, std::nullopt);
  }
}

bool await_flush(int connection, FrameWriter& writer, std::size_t most_pending) noexcept try {
  while (!writer.flush() && writer.pending() > most_pending) {
    std::array<pollfd, 1> entries{pollfd{connection, POLLOUT, 0}};
    sys::poll_until(entries, std::nullopt);
  }
  return true;
} catch (const std::exception&) {
  return false;
}

void harden_process(int parent_alive) noexcept {
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  // The parent may have died before the line above; its pidfd is readable from then on.
  pollfd entry{parent_alive, POLLIN, 0};
  if (poll(&entry, 1, 0) == 1) _exit(1);
}

}  // namespace casemate::guest
