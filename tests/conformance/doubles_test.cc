// Every probe can fail: for each there is a backend, wrong in one fact only, that it catches, and
// no two probes catch the same ones. tests/golden/conformance/doubles.txt is the whole matrix.

#include "tests/conformance/doubles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "casemate/conformance/conformance.h"
#include "casemate/conformance/probe.h"
#include "tests/conformance/subjects.h"
#include "tests/support/golden.h"

namespace casemate::conformance_tests {
namespace {

using conformance::ConformanceOptions;
using conformance::kSuites;
using conformance::probes_of;
using conformance::Report;
using conformance::run_conformance;
using conformance::Status;
using conformance::Subject;
using conformance::Suite;

// "files-in/parents-are-created": ids are unique within a suite only.
std::set<std::string> failed(Subject& subject, const std::set<Suite>& suites) {
  ConformanceOptions options;
  options.suites = suites;
  options.program_bound = std::chrono::milliseconds(100);
  std::set<std::string> names;
  for (const auto& result : run_conformance(subject, options).results) {
    EXPECT_NE(result.status, Status::skipped) << result.probe << ": " << result.reason;
    if (result.status == Status::failed) {
      names.insert(fmt::format("{}/{}", to_string(result.suite), result.probe));
    }
  }
  return names;
}

struct Matrix {
  // Doubles by the probes that catch them, in the order in which they were tried.
  std::vector<std::pair<std::string, std::set<std::string>>> rows;

  void add(const std::string& name, std::set<std::string> caught_by) {
    EXPECT_FALSE(caught_by.empty()) << "no probe catches what " << name;
    rows.emplace_back(name, std::move(caught_by));
  }

  std::map<std::string, std::set<std::string>> by_probe() const {
    std::map<std::string, std::set<std::string>> doubles;
    for (const auto& [name, probes] : rows) {
      for (const std::string& probe : probes) doubles[probe].insert(name);
    }
    return doubles;
  }

  std::string text() const {
    std::string text = "A backend that ... is caught by\n";
    for (const auto& [name, probes] : rows) {
      text += "\n" + name + "\n";
      for (const std::string& probe : probes) text += "    " + probe + "\n";
    }
    return text;
  }
};

void expect_every_probe_catches_its_own(const Matrix& matrix, const std::set<Suite>& suites) {
  std::map<std::set<std::string>, std::string> probe_of;
  const auto by_probe = matrix.by_probe();
  for (const auto& traits : kSuites) {
    if (!suites.contains(traits.suite)) continue;
    for (const auto& probe : probes_of(traits.suite)) {
      const std::string name = fmt::format("{}/{}", traits.name, probe.id);
      ASSERT_TRUE(by_probe.contains(name)) << "nothing makes it fail: " << name;
      const auto [other, fresh] = probe_of.emplace(by_probe.at(name), name);
      EXPECT_TRUE(fresh) << name << " and " << other->second << " catch the same";
    }
  }
}

TEST(Doubles, EveryProbeCatchesOneAndNoTwoTheSame) {
  Matrix matrix;
  for (const auto& doubles : {file_doubles(), exec_doubles()}) {
    for (const Double& each : doubles) {
      // A fresh one: the place without a boundary looks through every process it ever had.
      FaultySubject subject(faulty_backend(plain_backend(), each.faults));
      matrix.add(each.name, failed(subject, each.suites));
    }
  }
  for (const WebDouble& each : web_doubles()) {
    const auto subject = web_fake(each.rule, each.leak);
    matrix.add(each.name, failed(*subject, {Suite::egress}));
  }
  expect_every_probe_catches_its_own(
      matrix, {Suite::files_in, Suite::files_out, Suite::files_delete, Suite::exec, Suite::egress});
  expect_golden("conformance/doubles.txt", matrix.text());
}

TEST(Doubles, EveryProbeOfHostToolsCatchesOneAndNoTwoTheSame) {
  if (const std::string reason = why_no_linux(); !reason.empty()) GTEST_SKIP() << reason;
  Matrix matrix;
  for (const Double& each : host_tool_doubles()) {
    FaultySubject subject(faulty_backend(linux_backend(), each.faults));
    matrix.add(each.name, failed(subject, each.suites));
  }
  expect_every_probe_catches_its_own(matrix, {Suite::host_tools});
  expect_golden("conformance/host_tool_doubles.txt", matrix.text());
}

}  // namespace
}  // namespace casemate::conformance_tests
