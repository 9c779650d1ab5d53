#include "casemate/backends/docker/own_kernel.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "casemate/base/digest.h"

namespace casemate::docker {
namespace {

// By a forwarded socket an engine of another machine says a number that is somebody's here.
TEST(OwnKernel, AProcessIsAContainersByItsIdAndNotByItsNumber) {
  EXPECT_TRUE(is_process_of_container(getpid(), program_invocation_short_name));
  EXPECT_FALSE(is_process_of_container(getpid(), random_hex(12)));
  EXPECT_FALSE(is_process_of_container(-1, program_invocation_short_name)) << "there is none";
}

}  // namespace
}  // namespace casemate::docker
