#pragma once

// For tests: what comes over a socket, waited for.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>

#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

inline void await_readable(int fd) {
  std::array<pollfd, 1> entries{pollfd{fd, POLLIN, 0}};
  ASSERT_EQ(sys::poll_until(entries, sys::SteadyTime::clock::now() + std::chrono::minutes(1)), 1);
}

// Nothing more comes, and nothing of it is an error.
inline bool has_ended(const sys::UniqueFd& socket) {
  std::string buffer(4096, '\0');
  while (true) {
    await_readable(socket.get());
    const sys::ReceivedBytes got = sys::receive_bytes(socket.get(), buffer, sys::Blocking::no);
    if (got.would_block) return false;
    if (got.bytes == 0) return true;
  }
}

}  // namespace casemate::guest
