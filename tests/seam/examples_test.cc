// The examples that need a container engine do what they say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/oci/oci_backend.h"
#include "casemate/backends/oci/runtime.h"
#include "tests/docker/engines.h"
#include "tests/support/scratch.h"

namespace casemate::seam {
namespace {

using docker_tests::engine_under_test;
using docker_tests::EngineUnderTest;
using docker_tests::kImage;
using testing::HasSubstr;
namespace fs = std::filesystem;

struct Ran {
  int status = -1;
  std::string said;
};

// An example with words that need no quoting; what it says on both streams.
Ran run_example(const std::string& name, const std::string& words) {
  const char* build = std::getenv("CASEMATE_BUILD_DIR");
  const std::string program =
      (build == nullptr ? "build/release/" : build + std::string("/")) + name;
  Ran ran;
  std::FILE* pipe = popen((program + " " + words + " 2>&1 < /dev/null").c_str(), "re");
  if (pipe == nullptr) return ran;
  for (int byte = std::fgetc(pipe); byte != EOF; byte = std::fgetc(pipe)) {
    ran.said += static_cast<char>(byte);
  }
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

class Examples : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const EngineUnderTest& engine = engine_under_test(GetParam());
    if (!engine.failure.empty()) FAIL() << engine.failure;
    if (engine.address.empty()) GTEST_SKIP() << engine.missing;
    address_ = engine.address;
  }

  fs::path path(const char* name) const { return scratch_.path() / name; }

  Scratch scratch_;
  std::string address_;
};

std::string name_of(const testing::TestParamInfo<std::string>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Every, Examples, testing::Values("docker", "podman"), name_of);

TEST_P(Examples, ATableGoesIntoAContainerAndAChartComesOut) {
  put(path("in.csv"),
      "date,region,product,units,unit_price\n"
      "2025-01-02,North,\"Lamp, <small>\",3,12.50\n"
      "2025-01-03,South,Desk,2,249.00\n"
      "2025-01-04,North,Desk,1,249.00\n");
  const std::string words = path("in.csv").string() + " " + path("out").string() + " " + kImage +
                            " " + address_ + " " + path("state").string();
  const Ran ran = run_example("docker_codeact_files", words);
  ASSERT_EQ(ran.status, 0) << ran.said;
  EXPECT_THAT(ran.said, HasSubstr("Desk                747.00\nLamp, <small>        37.50\n"));
  EXPECT_THAT(ran.said, HasSubstr("landed: " + path("out/revenue.svg").string() + "\n"));
  const std::string chart = get(path("out/revenue.svg"));
  EXPECT_THAT(chart, HasSubstr(">Lamp, &lt;small&gt;</text><rect x=\"120\" y=\"35\" width=\"20\""));
  // What is there is not replaced, and that is no success.
  EXPECT_EQ(run_example("docker_codeact_files", words).status, 1);
  EXPECT_EQ(get(path("out/revenue.svg")), chart);
}

TEST_P(Examples, TheRouterTellsTwoBackendsApart) {
  const BackendProbe probe = LinuxBackend({.state_dir = path("probe").string()}).probe();
  if (!probe.available) GTEST_SKIP() << "the linux backend does not work here: " << probe.reason;
  // An engine that does not answer in time counts as not available, and then linux serves.
  Ran ran;
  for (int tries = 0; tries < 5 && ran.said.find("ran on docker") == std::string::npos; ++tries) {
    ran = run_example("router_two_backends",
                      "docker:" + address_ + " " + kImage + " " + path("state").string());
  }
  ASSERT_EQ(ran.status, 0) << ran.said;
  EXPECT_THAT(ran.said, HasSubstr("no network\n"
                                  "  docker: can serve it\n"
                                  "  linux: can serve it\n"
                                  "  ran on docker, container: 42\n"
                                  "may reach example.org\n"
                                  "  docker: SandboxEgressNotEnforced: "));
  EXPECT_THAT(ran.said, HasSubstr("  linux: can serve it\n  ran on linux, container: 42\n"
                                  "not on the host's kernel\n"
                                  "  docker: SandboxBackendNotPermitted: "));
  EXPECT_THAT(ran.said, HasSubstr("  ran nowhere: SandboxBackendNotPermitted\n"));
  EXPECT_THAT(ran.said, HasSubstr("keeps snapshots\n  docker: SandboxCapabilityNotSupported: "));
  EXPECT_THAT(ran.said, HasSubstr("a host whose floor is microvm\n"
                                  "  no router: SandboxBackendNotPermitted: "));
}

}  // namespace

// A floor tells them apart where one has a kernel of its own.
TEST(ExamplesWithRunsc, TheRouterGivesAnotherKernelToWhoAsksForOne) {
  if (!oci::find_program("runsc", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")) {
    GTEST_SKIP() << "the OCI runtime runsc is not installed";
  }
  const Scratch scratch;
  const std::string state = scratch.path() / "state";
  for (const auto& probe : {LinuxBackend({.state_dir = state + "-linux"}).probe(),
                            OciBackend({.runtime = "runsc", .state_dir = state}).probe()}) {
    if (!probe.available) GTEST_SKIP() << "one of the two does not work here: " << probe.reason;
  }
  const Ran ran = run_example("router_two_backends", "oci:runsc none " + state);
  ASSERT_EQ(ran.status, 0) << ran.said;
  EXPECT_THAT(ran.said, HasSubstr("may reach example.org\n"
                                  "  oci: SandboxEgressNotEnforced: "));
  EXPECT_THAT(ran.said, HasSubstr("  ran on linux, container: 42\n"
                                  "not on the host's kernel\n"
                                  "  oci: can serve it\n"
                                  "  linux: SandboxBackendNotPermitted: "));
  EXPECT_THAT(ran.said, HasSubstr("  ran on oci, hardened_container: 42\nkeeps snapshots\n"));
}

TEST(ExamplesWithoutAnEngine, SayWhereTheyLooked) {
  const Scratch scratch;
  const Ran ran = run_example("docker_codeact_files", "README.md " + scratch.path().string() +
                                                          "/out x unix:///nowhere/engine.sock " +
                                                          scratch.path().string());
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.said, HasSubstr("the engine at unix:///nowhere/engine.sock cannot be reached"));
  EXPECT_THAT(ran.said, HasSubstr("Error: the sandbox is not available"));
}

}  // namespace casemate::seam
