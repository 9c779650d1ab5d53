// Every probe can fail: for each there is a backend, wrong in one fact only, that it catches, and
// no two probes catch the same ones. The files of tests/golden/conformance are the matrix.

#include "tests/conformance/doubles.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>

#include "casemate/conformance/conformance.h"
#include "tests/conformance/matrix.h"
#include "tests/conformance/subjects.h"
#include "tests/support/golden.h"
#include "tests/support/scratch.h"

namespace casemate::conformance_tests {
namespace {

using conformance::Suite;

void expect_matrix(const std::string& name, const Matrix& matrix) {
  std::cout << matrix.text();
  expect_golden("conformance/" + name + ".txt", matrix.text());
}

TEST(Doubles, EveryProbeCatchesOneAndNoTwoTheSame) {
  Matrix matrix;
  for (const auto& doubles : {file_doubles(), exec_doubles()}) {
    for (const Double& each : doubles) {
      // A fresh one: the place without a boundary looks through every process it ever had.
      FaultySubject subject(faulty_backend(plain_backend(), each.faults));
      matrix.try_out(each.name, subject, each.suites);
    }
  }
  for (const WebDouble& each : web_doubles()) {
    const auto subject = web_fake(each.rule, each.leak);
    matrix.try_out(each.name, *subject, {Suite::egress});
  }
  matrix.expect_every_probe_catches_its_own(
      {Suite::files_in, Suite::files_out, Suite::files_delete, Suite::exec, Suite::egress});
  expect_matrix("doubles", matrix);
}

TEST(Doubles, EveryProbeOfHostToolsCatchesOneAndNoTwoTheSame) {
  if (const std::string reason = why_no_linux(); !reason.empty()) GTEST_SKIP() << reason;
  Matrix matrix;
  for (const Double& each : host_tool_doubles()) {
    FaultySubject subject(faulty_backend(linux_backend(), each.faults));
    matrix.try_out(each.name, subject, each.suites);
  }
  matrix.expect_every_probe_catches_its_own({Suite::host_tools});
  expect_matrix("host_tool_doubles", matrix);
}

TEST(Doubles, EveryProbeOfSnapshotsCatchesOneAndNoTwoTheSame) {
  if (const std::string reason = why_no_linux(); !reason.empty()) GTEST_SKIP() << reason;
  Matrix matrix;
  for (const Double& each : snapshot_doubles()) {
    FaultySubject subject(faulty_backend(linux_backend(), each.faults));
    matrix.try_out(each.name, subject, each.suites);
  }
  matrix.expect_every_probe_catches_its_own({Suite::snapshot});
  expect_matrix("snapshot_doubles", matrix);
}

// -- Real places with holes -----------------------------------------------------------------------
//
// What a hole opens is this test's own, never the machine's: it runs in process, mount and network
// namespaces made for it, below a deadline, and the kernel ends all that is left in them.

constexpr char kGuarded[] = "CASEMATE_TEST_IS_GUARDED";

// Whether this is the guarded run; if not, it has been made, and its end was expected to be good.
bool is_guarded() {
  if (std::getenv(kGuarded) != nullptr) return true;
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string line =
      std::string(kGuarded) +
      "=1 timeout --kill-after=5 500 unshare --mount --net --pid --fork --kill-child --mount-proc "
      "sh -c 'ip link set lo up && exec \"$@\"' sh " +
      self + " --gtest_filter=" + test->test_suite_name() + "." + test->name();
  EXPECT_EQ(std::system(line.c_str()), 0) << line;
  return false;
}

std::string why_no_holes() {
  if (geteuid() != 0) return "needs root: holes are opened in namespaces of the test's own";
  return std::system("bwrap --version > /dev/null 2>&1") == 0 ? "" : "bwrap is not installed";
}

TEST(PlaceDoubles, EveryProbeOfIsolationCatchesOneAndNoTwoTheSame) {
  if (const std::string reason = why_no_holes(); !reason.empty()) GTEST_SKIP() << reason;
  if (const std::string reason = why_no_linux(); !reason.empty()) GTEST_SKIP() << reason;
  const auto holds_bounds = linux_backend();
  // Asked before the guarded run, in which a skip would look like a pass.
  if (!holds_bounds->declarations().enforceable_limits.contains(Limit::memory)) {
    GTEST_SKIP() << "no control group bounds memory here";
  }
  if (!is_guarded()) return;
  const Scratch scratch;
  std::filesystem::permissions(scratch.path(), std::filesystem::perms(0755));
  Matrix matrix;
  for (const PlaceDouble& each : isolation_doubles(scratch.path())) {
    FaultySubject subject(faulty_backend(bwrap_backend(each.walls), each.faults));
    matrix.try_out(each.name, subject, each.suites);
  }
  for (const Double& each : flood_doubles()) {
    FaultySubject subject(faulty_backend(holds_bounds, each.faults));
    matrix.try_out(each.name, subject, each.suites);
  }
  matrix.expect_every_probe_catches_its_own({Suite::rung, Suite::isolation});
  // Printed and not held to a file: on a busy machine a flood's probe may catch one more.
  std::cout << matrix.text();
}

TEST(PlaceDoubles, EveryProbeOfUsabilityCatchesOneAndNoTwoTheSame) {
  if (const std::string reason = why_no_holes(); !reason.empty()) GTEST_SKIP() << reason;
  if (!is_guarded()) return;
  Matrix matrix;
  for (const PlaceDouble& each : usability_doubles()) {
    FaultySubject subject(faulty_backend(bwrap_backend(each.walls), each.faults));
    matrix.try_out(each.name, subject, each.suites);
  }
  matrix.expect_every_probe_catches_its_own({Suite::usability});
  expect_matrix("usability_doubles", matrix);
}

TEST(PlaceDoubles, TheGoodOneHasNoHole) {
#ifdef __SANITIZE_ADDRESS__
  // A process that is first in its namespace is spared the signals for which it has no handler.
  GTEST_SKIP()
      << "the sanitizer handles signals in the agent, which a program with its id can send";
#endif
  if (const std::string reason = why_no_holes(); !reason.empty()) GTEST_SKIP() << reason;
  if (!is_guarded()) return;
  conformance::Subject subject(bwrap_backend({}));
  conformance::ConformanceOptions options;
  options.suites = {Suite::usability, Suite::rung, Suite::isolation};
  EXPECT_EQ(run_conformance(subject, options).failures(), "");
}

}  // namespace
}  // namespace casemate::conformance_tests
