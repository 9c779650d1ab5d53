// Good backends pass, and a run says what it did.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>
#include <set>

#include "casemate/base/json.h"
#include "casemate/conformance/conformance.h"
#include "casemate/conformance/probe.h"
#include "tests/conformance/subjects.h"
#include "tests/conformance/web_fake.h"
#include "tests/support/claiming_backend.h"
#include "tests/support/expect_refusal.h"

namespace casemate::conformance_tests {
namespace {

using conformance::ConformanceOptions;
using conformance::Probe;
using conformance::Report;
using conformance::run_conformance;
using conformance::Status;
using conformance::Subject;
using conformance::Suite;

std::set<Suite> suites_of(const Report& report, Status status) {
  std::set<Suite> suites;
  for (const auto& result : report.results) {
    if (result.status == status) suites.insert(result.suite);
  }
  return suites;
}

TEST(Conformance, HasEveryProbeOfTheContract) {
  std::map<Suite, std::size_t> sizes;
  for (const auto& traits : conformance::kSuites) {
    sizes[traits.suite] = conformance::probes_of(traits.suite).size();
  }
  EXPECT_EQ(sizes[Suite::files_in], 12U);
  EXPECT_EQ(sizes[Suite::files_out], 12U);
  EXPECT_EQ(sizes[Suite::files_delete], 10U);
  EXPECT_EQ(sizes[Suite::exec], 5U);
  // Ours beside the contract's two.
  EXPECT_GE(sizes[Suite::egress], 4U);
  EXPECT_GE(sizes[Suite::host_tools], 7U);
  EXPECT_EQ(sizes[Suite::snapshot], 13U);
  EXPECT_EQ(sizes[Suite::usability], 15U);
  EXPECT_EQ(sizes[Suite::rung], 1U);
  EXPECT_EQ(sizes[Suite::isolation], 36U);
}

TEST(Conformance, ARealGuestOverPlainDirectoriesPasses) {
  Subject subject(plain_backend());
  ConformanceOptions options;
  // It has no boundary, and no home directory.
  options.suites = {Suite::files_in, Suite::files_out, Suite::files_delete, Suite::exec};
  const Report report = run_conformance(subject, options);
  EXPECT_EQ(report.failures(), "");
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.count(Status::skipped), 0U);
}

TEST(Conformance, TheFakePassesWhatItDeclares) {
  const auto subject = fake_subject();
  const Report report = run_conformance(*subject);
  EXPECT_EQ(report.failures(), "");
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(suites_of(report, Status::passed),
            (std::set<Suite>{Suite::files_in, Suite::files_out, Suite::files_delete}));
}

// ISO-15: one whose only fence is a language shows no rung above `process` either.
TEST(Conformance, TheFakeIsRefusedAboveProcess) {
  for (const Isolation rung : {Isolation::runtime, Isolation::os_process, Isolation::container,
                               Isolation::hardened_container, Isolation::microvm, Isolation::vm}) {
    const auto subject = fake_subject(rung);
    const Report report = run_conformance(*subject);
    EXPECT_FALSE(report.passed()) << to_string(rung);
    EXPECT_EQ(report.count(Status::failed), 1U) << report.failures();
    EXPECT_NE(report.failures().find("rung the-rung-is-shown: "), std::string::npos);
  }
}

TEST(Conformance, ABoundaryThatIsNotThereIsMissedPieceByPiece) {
  Subject subject(std::make_shared<ClaimingBackend>(plain_backend(), Isolation::container));
  ConformanceOptions options;
  options.suites = {Suite::rung};
  const std::string failures = run_conformance(subject, options).failures();
  for (const char* piece : {"a pid namespace of its own", "a net namespace of its own",
                            "a root directory of its own", "a mnt namespace of its own"}) {
    EXPECT_NE(failures.find(piece), std::string::npos) << failures;
  }
}

TEST(Conformance, EgressThatHoldsItsListPasses) {
  const auto subject = web_fake();
  ConformanceOptions options;
  options.suites = {Suite::egress};
  const Report report = run_conformance(*subject, options);
  EXPECT_EQ(report.failures(), "");
  EXPECT_EQ(report.count(Status::passed), 4U);
}

TEST(Conformance, TheLinuxBackendPassesAndSkipsNothingThatItDeclares) {
  if (const std::string reason = why_no_linux(); !reason.empty()) GTEST_SKIP() << reason;
  Subject subject(linux_backend());
  const Report report = run_conformance(subject);
  EXPECT_EQ(report.failures(), "");
  // Not one of a suite whose gate is declared, but for what a mode that is not declared would take,
  // and memory where this user may make no control group that bounds it.
  const bool bounds_memory =
      subject.backend().declarations().enforceable_limits.contains(Limit::memory);
  for (const auto& result : report.results) {
    if (result.status != Status::skipped) continue;
    const std::string why = result.probe + ": " + result.reason;
    if (!bounds_memory && why == "memory-is-bounded: a bound on memory is not declared") continue;
    EXPECT_EQ(why, "an-allowed-host-is-reachable: allowlist is not declared");
  }
}

TEST(Conformance, TheLinuxBackendOverOneStreamPassesTheSame) {
  if (const std::string reason = why_no_linux(); !reason.empty()) GTEST_SKIP() << reason;
  Subject subject(streamed_linux_backend());
  const Report report = run_conformance(subject);
  EXPECT_EQ(report.failures(), "");
  for (const auto& result : report.results) {
    if (result.status != Status::skipped) continue;
    const std::string why = result.probe + ": " + result.reason;
    // Whether it is idle is told by its own sockets.
    if (why.ends_with(": snapshot is not declared")) continue;
    // Its control groups are what does not go over a stream.
    if (why == "memory-is-bounded: a bound on memory is not declared") continue;
    EXPECT_EQ(why, "an-allowed-host-is-reachable: allowlist is not declared");
  }
}

TEST(Conformance, ASuiteThatWasAskedForIsRefusedWhereItIsNotDeclared) {
  const auto subject = fake_subject();
  ConformanceOptions options;
  options.suites = {Suite::exec};
  expect_refusal<InvalidArgument>([&] { run_conformance(*subject, options); },
                                  {"suite exec", "in-process", "exec is not declared"});
}

TEST(Conformance, AProbeThatIsNotThereIsRefused) {
  const auto subject = fake_subject();
  ConformanceOptions options;
  options.suites = {Suite::files_in};
  options.probes = {"parents-are-created", "listing-a-linked-directory"};
  expect_refusal<InvalidArgument>([&] { run_conformance(*subject, options); },
                                  "'listing-a-linked-directory'");
  options.probes = {"parents-are-created"};
  EXPECT_EQ(run_conformance(*subject, options).results.size(), 1U);
}

TEST(Conformance, AStopEndsTheRun) {
  const auto subject = fake_subject();
  std::stop_source stop;
  ConformanceOptions options;
  options.stop = stop.get_token();
  options.on_result = [&](const auto&) { stop.request_stop(); };
  EXPECT_THROW(run_conformance(*subject, options), SandboxCancelled);
}

TEST(Conformance, ARecordSaysWhatASuiteSaw) {
  Report report;
  report.results = {
      {.probe = "p", .suite = Suite::exec, .sentence = "s"},
      {.probe = "q",
       .suite = Suite::files_in,
       .sentence = "t",
       .status = Status::failed,
       .expected = "7",
       .seen = "1",
       .reason = "sh"},
  };
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.failures(), "files-in q: t\n  sh\n  expected 7\n  seen     1\n");
  EXPECT_EQ(to_json(report),
            R"([{"probe":"p","suite":"exec","sentence":"s","status":"passed","expected":null,)"
            R"("seen":null,"reason":null},{"probe":"q","suite":"files-in","sentence":"t",)"
            R"("status":"failed","expected":"7","seen":"1","reason":"sh"}])");
}

TEST(Conformance, ARunInWhichNothingWasTriedHasNotPassed) { EXPECT_FALSE(Report().passed()); }

}  // namespace
}  // namespace casemate::conformance_tests
