#pragma once

#include "tests/linux/linux_test.h"

namespace casemate::linux_tests {

class LinuxLifecycle : public LinuxTest {
 protected:
  SandboxSpec other_spec() {
    SandboxSpec other = spec();
    other.resources.pids = stated(50);
    return other;
  }
};

}  // namespace casemate::linux_tests
