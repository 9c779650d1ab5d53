// Every probe of the kit, against real engines.

#include "casemate/conformance/conformance.h"

#include <gtest/gtest.h>

#include "tests/docker/engines.h"

namespace casemate::docker_tests {
namespace {

class DockerConformance : public DockerTest {};

INSTANTIATE_TEST_SUITE_P(Engines, DockerConformance, testing::Values("docker", "podman"),
                         [](const auto& each) { return each.param; });

TEST_P(DockerConformance, PassesAndSkipsNothingThatIsDeclared) {
  DockerBackendOptions with_image = options();
  with_image.image = kImage;
  conformance::Subject subject(std::make_shared<DockerBackend>(with_image));
  const conformance::Report report = conformance::run_conformance(subject);
  EXPECT_EQ(report.failures(), "");
  for (const auto& result : report.results) {
    if (result.status != conformance::Status::skipped) continue;
    const bool undeclared = result.reason.find("not declared") != std::string::npos;
    EXPECT_TRUE(undeclared) << result.probe << ": " << result.reason;
  }
}

}  // namespace
}  // namespace casemate::docker_tests
