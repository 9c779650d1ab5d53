#pragma once

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate {

// Waits until `holds`, which is asked first and then after every one of these events (inotify(7))
// in the directory; at most 20 s. Whether it does. What `holds` does must be none of them. It is
// asked every 50 ms besides: the kernel tells of some events before what they tell of is to be seen
// (of an open before there is a descriptor).
inline bool wait_for_events(const std::filesystem::path& directory, std::uint32_t events,
                            const std::function<bool()>& holds) {
  const sys::UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (inotify_add_watch(watch.get(), directory.c_str(), events) < 0) {
    sys::throw_errno("watching a directory");
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) return false;
    pollfd entry{.fd = watch.get(), .events = POLLIN, .revents = 0};
    sys::poll_until({&entry, 1}, std::min(until, now + std::chrono::milliseconds(50)));
    char taken[4096];
    while (read(watch.get(), taken, sizeof taken) > 0) {
    }
  }
  return true;
}

}  // namespace casemate
