#include "casemate/guest/runtime_rest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "tests/support/scratch.h"

namespace casemate::guest {
namespace {

namespace fs = std::filesystem;

std::string random_id() {
  std::random_device device;
  std::string id;
  while (id.size() < 16) id += "0123456789abcdef"[device() % 16];
  return id;
}

// A directory in which groups can be made; empty where there is none.
fs::path hierarchy() {
  for (const char* point : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}) {
    std::error_code none;
    const fs::path made = fs::path(point) / ("casemate-rest-" + random_id());
    if (fs::exists(fs::path(point) / "cgroup.procs") && fs::create_directory(made, none)) {
      return made;
    }
  }
  return {};
}

TEST(RuntimeRest, OfTheGroupsThatARecordNamesThoseCalledAsTheSandboxGoAndNoOtherDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "root is who may make control groups";
  const fs::path groups = hierarchy();
  if (groups.empty()) GTEST_SKIP() << "this user may make no control groups";
  const Scratch scratch;
  const std::string id = random_id();
  const fs::path other = scratch / id;
  fs::create_directory(groups / id);
  fs::create_directory(groups / "other");
  fs::create_directory(other);
  fs::create_directories(scratch / "state" / id);
  std::ofstream(scratch / "state" / id / "state.json")
      << R"({"id":")" << id << R"(","rootfs":")" << other.native() << R"(","cgroup_paths":{"":")"
      << (groups / id).native() << R"(","x":")" << (groups / "other").native() << "\"}}";
  EXPECT_TRUE(remove_runtime_rest(scratch / "state", id));
  EXPECT_FALSE(fs::exists(groups / id));
  EXPECT_TRUE(fs::exists(groups / "other"));
  EXPECT_TRUE(fs::exists(other)) << "it is no control group";
  EXPECT_FALSE(fs::exists(scratch / "state" / id));
  rmdir((groups / "other").c_str());
  rmdir(groups.c_str());
}

}  // namespace
}  // namespace casemate::guest
