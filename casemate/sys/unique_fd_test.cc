#include "casemate/sys/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace casemate::sys {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItHoldsOnceItsLastOwnerIsGone) {
  int number = -1;
  {
    UniqueFd first(open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = first.get();
    const UniqueFd second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): empty is what is promised
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, ReleaseGivesUpOwnership) {
  UniqueFd held(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd other(held.release());
  EXPECT_FALSE(held);
  held.reset();
  EXPECT_TRUE(is_open(other.get()));
}

}  // namespace
}  // namespace casemate::sys
