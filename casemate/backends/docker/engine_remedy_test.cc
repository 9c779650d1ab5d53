#include "casemate/backends/docker/engine_remedy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/scratch.h"

namespace casemate::docker {
namespace {

using testing::HasSubstr;

TEST(EngineRemedy, ASocketOfAGroupIsHadByJoiningTheGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a file to a group";
  const Scratch scratch;
  const std::string path = (scratch / "engine.sock").string();
  put(path, "");
  ASSERT_EQ(chown(path.c_str(), 0, 4), 0);  // adm, as every Debian has it
  ASSERT_EQ(chmod(path.c_str(), 0660), 0);
  const local::Remedy remedy = remedy_for_socket(path, EACCES, "somebody", Installed::yes);
  EXPECT_EQ(remedy.command, "usermod -aG adm somebody");
  EXPECT_THAT(remedy.hint, HasSubstr("as root: usermod -aG adm somebody"));
  EXPECT_EQ(remedy_for_socket(path, EACCES, "", Installed::yes), local::Remedy{})
      << "nobody to put into it";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(remedy_for_socket(path, EACCES, "somebody", Installed::yes), local::Remedy{})
      << "root's alone";
}

TEST(EngineRemedy, OfAnEngineThatIsNotThereIsItsPackage) {
  for (const char* path : {"/run/docker.sock", "/var/run/docker.sock"}) {
    for (const int error : {ENOENT, ECONNREFUSED}) {
      EXPECT_EQ(remedy_for_socket(path, error, "", Installed::yes).hint.find("apt-get"),
                std::string::npos);
      EXPECT_EQ(remedy_for_socket(path, error, "", Installed::no).command,
                "apt-get update && apt-get install -y docker.io");
    }
  }
  EXPECT_EQ(remedy_for_socket("/run/somebody.sock", ENOENT, "", Installed::no), local::Remedy{});
}

}  // namespace
}  // namespace casemate::docker
