#include "casemate/sys/poll.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "casemate/sys/error.h"

namespace casemate::sys {

int poll_until(std::span<pollfd> entries, std::optional<SteadyTime> until) {
  while (true) {
    timespec rest{};
    if (until) {
      const auto left = std::max(std::chrono::nanoseconds{0},
                                 std::chrono::nanoseconds{*until - SteadyTime::clock::now()});
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      rest.tv_sec = static_cast<time_t>(seconds.count());
      rest.tv_nsec = static_cast<long>((left - seconds).count());
    }
    const int ready = ppoll(entries.data(), entries.size(), until ? &rest : nullptr, nullptr);
    if (ready >= 0) return ready;
    if (errno != EINTR) throw_errno("ppoll");
  }
}

UniqueFd make_event() {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw_errno("eventfd");
  return event;
}

void raise_event(int event) noexcept {
  const int saved = errno;
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then it is raised already.
  [[maybe_unused]] const auto written = write(event, &one, sizeof one);
  errno = saved;
}

}  // namespace casemate::sys
