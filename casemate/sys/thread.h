#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "casemate/sys/error.h"

namespace casemate::sys {

// A thread of that type, which begins with `act`. Throws `std::system_error` that says what failed:
// the standard library's own says only why.
template <typename Thread = std::thread, typename Act>
Thread start_thread(Act&& act) {
  try {
    return Thread(std::forward<Act>(act));
  } catch (const std::system_error& error) {
    throw_error(error.code().value(), "starting a thread");
  }
}

}  // namespace casemate::sys
