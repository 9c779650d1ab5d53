#pragma once

#include <memory>

#include "tests/linux/linux_test.h"

namespace casemate::linux_tests {

class LinuxLimits : public LinuxTest {
 protected:
  std::shared_ptr<Sandbox> limited(const Resources& resources) {
    SandboxSpec wanted = spec();
    wanted.resources = resources;
    return acquire(key(), wanted);
  }
};

}  // namespace casemate::linux_tests
