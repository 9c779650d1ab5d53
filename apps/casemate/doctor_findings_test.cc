#include "apps/casemate/doctor_findings.h"

#include <gtest/gtest.h>

#include <string>

#include "casemate/core/errors.h"
#include "casemate/core/vocabulary.h"

namespace casemate::app {
namespace {

const std::map<std::string, std::string> kOurs = {{"net", "net:[1]"}, {"pid", "pid:[2]"}};
constexpr char kSeen[] =
    "Name:\tcat\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
    "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    "Seccomp_filters:\t1\nnamespace net:[7]\nnamespace pid:[8]\ninterface lo\n";

std::string seen_with(const std::string& from, const std::string& to) {
  std::string text = kSeen;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Evidence, IsWholeWhereAProgramSeesAllOfIt) {
  EXPECT_EQ(lacking_evidence(kSeen, kOurs), std::vector<std::string>{});
}

TEST(Evidence, OfOneThingLessIsNamed) {
  const auto expect_lacking = [](const std::string& from, const std::string& to,
                                 const std::string& named) {
    const auto lacking = lacking_evidence(seen_with(from, to), kOurs);
    ASSERT_EQ(lacking.size(), 1U) << from << " to " << to;
    EXPECT_NE(lacking[0].find(named), std::string::npos) << lacking[0];
  };
  expect_lacking("net:[7]", "net:[1]", "net namespace");
  expect_lacking("namespace pid:[8]\n", "", "pid namespace");
  expect_lacking("CapEff:\t0000000000000000", "CapEff:\t0000000000000001", "CapEff");
  expect_lacking("CapBnd:\t0000000000000000\n", "", "CapBnd");
  expect_lacking("NoNewPrivs:\t1", "NoNewPrivs:\t0", "no_new_privs");
  expect_lacking("Seccomp:\t2", "Seccomp:\t0", "filter");
  expect_lacking("interface lo\n", "interface lo\ninterface eth0\n", "loopback");
  expect_lacking("interface lo\n", "", "loopback");
}

TEST(Evidence, OfNothingIsLackingAltogether) {
  EXPECT_EQ(lacking_evidence("", kOurs).size(), kOurs.size() + 8);
}

TEST(Evidence, IsReadOfThisProcessTheSameWay) {
  for (const auto& [kind, name] : own_namespaces())
    EXPECT_TRUE(name.starts_with(kind + ":[")) << name;
  EXPECT_EQ(own_namespaces().size(), 7U);
}

class Absent : public SandboxBackend {
 public:
  BackendDeclarations declarations() const override { return {.name = "absent"}; }
  std::shared_ptr<Sandbox> acquire(const SandboxKey&, const SandboxSpec&,
                                   const CallControl&) override {
    throw SandboxUnavailable("not here", "look elsewhere");
  }
  int dispose(const SandboxKey&) noexcept override { return 0; }
  int dispose_scope(std::string_view, std::string_view) noexcept override { return 0; }
  bool dispose_id(std::string_view) noexcept override { return false; }
  BackendProbe probe() override { return found; }
  BackendProbe found;
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

}  // namespace
}  // namespace casemate::app
