// The same program gives the same on every backend, byte for byte, but for what the table of
// differences names.

#include "tests/seam/scenarios.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/seam/differences.h"
#include "tests/seam/scenario_backends.h"
#include "tests/support/golden.h"
#include "tests/support/scratch.h"

namespace casemate::seam {
namespace {

// What a backend gave, or why there is none.
struct Results {
  std::string missing;
  std::string failure;
  std::map<std::string, std::string> transcripts;
  std::optional<double> host_tool_microseconds;
  double seconds = 0;
};

bool applies(const Scenario& scenario, const BackendUnderTest& subject) {
  return !scenario.needs_boundary || subject.name != kWithoutABoundary;
}

bool holds(const BackendDeclarations& declared, const std::optional<Limit>& limit) {
  return !limit || declared.enforceable_limits.contains(*limit);
}

Results run_all(const BackendUnderTest& subject) {
  Results results;
  const Scratch scratch;
  BackendUnderTest::Made made = subject.make(scratch / "state");
  results.missing = made.missing;
  results.failure = made.failure;
  if (!made.backend) return results;
  const auto began = std::chrono::steady_clock::now();
  {
    ScenarioRunner runner(made.backend, made.image, scratch / "landed", subject.patience);
    for (const Scenario& scenario : scenarios()) {
      if (!applies(scenario, subject)) continue;
      if (!holds(made.backend->declarations(), scenario.uses_up)) continue;
      results.transcripts[scenario.name] = runner.transcript(scenario);
    }
    results.host_tool_microseconds = runner.host_tool_microseconds();
  }
  results.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  for (const SandboxRecord& left : made.backend->list()) {
    results.failure = "sandbox " + left.id + " is left";
  }
  return results;
}

// Each backend runs once, whichever test asks first.
std::map<std::string, Results>& all_results() {
  static std::map<std::string, Results> all;
  return all;
}

const Results& results_of(const BackendUnderTest& subject) {
  auto& all = all_results();
  const auto found = all.find(subject.name);
  return found != all.end() ? found->second
                            : all.emplace(subject.name, run_all(subject)).first->second;
}

// For a reader of the output: what the machine's backends gave, at the end of the program.
class Table final : public testing::Environment {
 public:
  void TearDown() override {
    if (all_results().empty()) return;
    std::printf("%-12s %9s %11s %18s %8s\n", "backend", "scenarios", "differences",
                "host tool p50, us", "seconds");
    for (const BackendUnderTest& subject : backends_under_test()) {
      const auto found = all_results().find(subject.name);
      if (found == all_results().end()) continue;
      const Results& results = found->second;
      if (results.transcripts.empty()) {
        std::printf("%-12s %s%s\n", subject.name.c_str(), results.missing.c_str(),
                    results.failure.c_str());
        continue;
      }
      const auto listed = std::ranges::count(differences(), subject.name, &Difference::backend);
      const std::string p50 = results.host_tool_microseconds
                                  ? fmt::format("{:.1f}", *results.host_tool_microseconds)
                                  : "none";
      std::printf("%-12s %9zu %11td %18s %8.1f\n", subject.name.c_str(), results.transcripts.size(),
                  listed, p50.c_str(), results.seconds);
    }
    std::printf("\n%-12s %-20s %s\n", "backend", "scenario", "differs because");
    for (const Difference& difference : differences()) {
      std::printf("%-12s %-20s %s\n", difference.backend.c_str(), difference.scenario.c_str(),
                  difference.reason.c_str());
    }
  }
};

[[maybe_unused]] const auto* const kTable = testing::AddGlobalTestEnvironment(new Table);

using Pair = std::tuple<BackendUnderTest, std::string>;

class Scenarios : public testing::TestWithParam<Pair> {};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Scenario& scenario : scenarios()) all.push_back(scenario.name);
  return all;
}

std::vector<Pair> pairs() {
  std::vector<Pair> all;
  for (const BackendUnderTest& subject : backends_under_test()) {
    for (const Scenario& scenario : scenarios()) {
      if (applies(scenario, subject)) all.emplace_back(subject, scenario.name);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, Scenarios, testing::ValuesIn(pairs()),
                         [](const testing::TestParamInfo<Pair>& pair) {
                           return std::get<0>(pair.param).name + "_" + std::get<1>(pair.param);
                         });

TEST_P(Scenarios, GiveWhatLinuxGives) {
  const auto& [subject, scenario] = GetParam();
  const Results& results = results_of(subject);
  if (!results.failure.empty()) FAIL() << results.failure;
  if (!results.missing.empty()) GTEST_SKIP() << results.missing;
  const auto found = results.transcripts.find(scenario);
  if (found == results.transcripts.end()) GTEST_SKIP() << "a bound on it is not declared";
  const std::string& given = found->second;
  if (subject.name == kReference) {
    expect_golden("seam/" + scenario + ".txt", given);
    return;
  }
  const Results& reference = results_of(backends_under_test().front());
  if (!reference.missing.empty()) GTEST_SKIP() << kReference << ": " << reference.missing;
  if (!reference.failure.empty()) FAIL() << kReference << ": " << reference.failure;
  const std::string& wanted = reference.transcripts.at(scenario);
  EXPECT_EQ(expected_of(subject.name, scenario, wanted), given);
}

TEST(Differences, AreOfBackendsAndScenariosThatThereAre) {
  const std::vector<std::string> known = names();
  for (const Difference& difference : differences()) {
    EXPECT_TRUE(difference.scenario == kEveryScenario ||
                std::ranges::count(known, difference.scenario))
        << difference.scenario;
    EXPECT_TRUE(
        std::ranges::count(backends_under_test(), difference.backend, &BackendUnderTest::name))
        << difference.backend;
    EXPECT_NE(difference.reason, "") << difference.backend << " " << difference.scenario;
    EXPECT_NE(difference.of_linux, difference.instead) << difference.scenario;
  }
}

// Nobody gives what is expected then.
TEST(Differences, ThatNoLongerExistAreNamed) {
  EXPECT_TRUE(
      expected_of("docker", "proc", "other\n").starts_with("a listed difference no longer"));
  EXPECT_EQ(expected_of("docker", "names", "the same\n"), "the same\n");
}

}  // namespace
}  // namespace casemate::seam
