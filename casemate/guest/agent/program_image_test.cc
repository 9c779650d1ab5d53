#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "casemate/guest/agent/exec_child.h"

namespace casemate::guest {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

std::vector<std::string> environment_of(const ProgramImage& image) {
  std::vector<std::string> entries;
  for (char* const* entry = image.environment(); *entry != nullptr; ++entry) {
    entries.emplace_back(*entry);
  }
  return entries;
}

TEST(ProgramImage, AWordWithoutASlashIsLookedUpOnTheBasePath) {
  const ProgramImage image({"python3", "-V"}, {});
  EXPECT_THAT(image.candidates(), ElementsAre("/usr/local/bin/python3", "/usr/bin/python3",
                                              "/bin/python3", "/casemate/bin/python3"));
  EXPECT_STREQ(image.argv()[1], "-V");
  EXPECT_EQ(image.argv()[2], nullptr);
}

TEST(ProgramImage, AWordWithASlashIsTakenAsItIs) {
  EXPECT_THAT(ProgramImage({"./a"}, {}).candidates(), ElementsAre("./a"));
  EXPECT_THAT(ProgramImage({""}, {}).candidates(), ElementsAre(""));
}

TEST(ProgramImage, TheRequestsPathWinsAlsoForTheLookup) {
  const ProgramImage image({"x"}, {{"PATH", "/a::/b"}});
  EXPECT_THAT(image.candidates(), ElementsAre("/a/x", "./x", "/b/x"));
  EXPECT_THAT(environment_of(image), Contains("PATH=/a::/b"));
  EXPECT_THAT(environment_of(image),
              Not(Contains("PATH=/usr/local/bin:/usr/bin:/bin:/casemate/bin")));
}

TEST(ProgramImage, TheEnvironmentIsTheBaseAndTheRequestAndNothingElse) {
  const ProgramImage image({"x"}, {{"A", "1"}, {"LANG", "C"}});
  EXPECT_THAT(environment_of(image),
              ElementsAre("PATH=/usr/local/bin:/usr/bin:/bin:/casemate/bin", "HOME=/home/user",
                          "USER=user", "LOGNAME=user", "TMPDIR=/tmp", "A=1", "LANG=C"));
}

}  // namespace
}  // namespace casemate::guest
