#include "apps/casemate/doctor_findings.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "casemate/backends/in_process/backend.h"
#include "casemate/core/errors.h"
#include "casemate/core/vocabulary.h"
#include "casemate/local/diagnosis.h"

namespace casemate::app {
namespace {

class Absent : public SandboxBackend {
 public:
  BackendDeclarations declarations() const override { return {.name = "absent"}; }
  std::shared_ptr<Sandbox> acquire(const SandboxKey&, const SandboxSpec&,
                                   const CallControl&) override {
    const SandboxUnavailable refusal("not here", "look elsewhere");
    if (state_is_unusable) throw Carrying<SandboxUnavailable, local::StateRemedy>(refusal, {});
    throw refusal;
  }
  int dispose(const SandboxKey&) noexcept override { return 0; }
  int dispose_scope(std::string_view, std::string_view) noexcept override { return 0; }
  bool dispose_id(std::string_view) noexcept override { return false; }
  BackendProbe probe() override { return found; }
  BackendProbe found;
  bool state_is_unusable = false;
};

TEST(Examination, OfABackendThatIsNotAvailableTellsWhyAndTheFix) {
  Absent backend;
  backend.found = {.available = false, .reason = "no engine", .fix = "install it", .engine = ""};
  const auto findings = examine(backend);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].status, Finding::Status::missing);
  EXPECT_EQ(findings[0].found, "no engine");
  EXPECT_EQ(findings[0].fix, "install it");
}

TEST(Examination, DoesNotTrustAProbe) {
  Absent backend;
  const auto findings = examine(backend);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].status, Finding::Status::missing);
  EXPECT_EQ(findings[0].found, "not here; look elsewhere");
}

TEST(Examination, ABackendThatDoesNotWorkIsMissingOnlyWhereNoOtherWorks) {
  const auto absent = std::make_shared<Absent>();
  absent->found = {.available = false, .reason = "no engine"};
  const std::vector<std::shared_ptr<SandboxBackend>> alone{absent};
  EXPECT_EQ(examine_all(alone).at(0).status, Finding::Status::missing);
  const auto works = std::make_shared<in_process::InProcessSandboxBackend>(
      std::make_shared<in_process::InProcessSandbox>(
          in_process::InProcessSandboxOptions{.default_stdout = "works\n"}));
  const std::vector<std::shared_ptr<SandboxBackend>> beside{absent, works};
  const auto findings = examine_all(beside);
  EXPECT_EQ(findings.at(0).status, Finding::Status::absent) << findings.at(0).found;
  EXPECT_EQ(findings.at(0).found, "no engine");
  EXPECT_EQ(findings.at(1).status, Finding::Status::ok) << findings.at(1).found;
  EXPECT_EQ(to_string(Finding::Status::absent), "absent");
  // One that somebody installed and that does not work is to be mended.
  absent->found.engine = "/usr/bin/engine";
  EXPECT_EQ(examine_all(beside).at(0).status, Finding::Status::missing);
  // And so is what somebody chose for one.
  absent->found.engine = "engine 1.0";
  absent->state_is_unusable = true;
  EXPECT_EQ(examine_all(beside).at(0).status, Finding::Status::absent) << "not why";
  absent->found.reason = "not here; look elsewhere";
  EXPECT_EQ(examine_all(beside).at(0).status, Finding::Status::missing);
}

}  // namespace
}  // namespace casemate::app
