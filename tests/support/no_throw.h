#pragma once

// For tests: what a thread does, whose exceptions would end the whole program.

#include <gtest/gtest.h>

#include <exception>
#include <utility>

namespace casemate {

// Does it; an exception is a test failure.
template <typename Act>
void no_throw(Act&& act) {
  try {
    std::forward<Act>(act)();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "a thread of the test's: " << error.what();
  }
}

}  // namespace casemate
