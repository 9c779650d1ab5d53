#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/types.h>
#include <time.h>

#include <array>
#include <chrono>

#include "casemate/sys/poll.h"

namespace casemate {

inline std::chrono::nanoseconds time_of_clock(clockid_t clock) {
  timespec time{};
  EXPECT_EQ(clock_gettime(clock, &time), 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// What a process has had of the processors, in all its threads.
inline std::chrono::nanoseconds processor_time(pid_t pid) {
  clockid_t clock{};
  EXPECT_EQ(clock_getcpuclockid(pid, &clock), 0);
  return time_of_clock(clock);
}
inline std::chrono::nanoseconds processor_time_of_thread(pthread_t thread) {
  clockid_t clock{};
  EXPECT_EQ(pthread_getcpuclockid(thread, &clock), 0);
  return time_of_clock(clock);
}

// How long to look for what shall not happen.
inline constexpr std::chrono::seconds kSpinWatch{2};
// One that spins has more of that, also where others want the processors too.
inline constexpr std::chrono::milliseconds kNoSpin{300};

inline void let_pass(std::chrono::milliseconds time) {
  sys::poll_until({}, std::chrono::steady_clock::now() + time);
}

}  // namespace casemate
