#include "tests/conformance/matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stop_token>

#include "casemate/conformance/conformance.h"
#include "casemate/conformance/probe.h"
#include "casemate/core/errors.h"

namespace casemate::conformance_tests {

using namespace conformance;
using Clock = std::chrono::steady_clock;

namespace {

// A bound on a hang, not a budget.
constexpr std::chrono::minutes kPatience{2};

}  // namespace

void Matrix::try_out(const std::string& name, Subject& subject, const std::set<Suite>& suites) {
  std::set<std::string> caught_by;
  std::stop_source stop;
  const auto until = Clock::now() + kPatience;
  ConformanceOptions options;
  options.suites = suites;
  options.patience = std::chrono::seconds(20);
  options.stop = stop.get_token();
  options.on_result = [&](const ProbeResult& result) {
    const std::string probe = fmt::format("{}/{}", to_string(result.suite), result.probe);
    EXPECT_TRUE(result.status != Status::skipped || result.reason.starts_with("a bound on "))
        << probe << ": " << result.reason;
    if (result.status == Status::failed) caught_by.insert(probe);
    if (Clock::now() > until) stop.request_stop();
  };
  try {
    run_conformance(subject, options);
  } catch (const SandboxError& error) {
    ADD_FAILURE() << name << ": " << error.message();
  }
  EXPECT_FALSE(caught_by.empty()) << "no probe catches what " << name;
  rows_.emplace_back(name, std::move(caught_by));
}

void Matrix::expect_every_probe_catches_its_own(const std::set<Suite>& suites) const {
  std::map<std::string, std::set<std::string>> by_probe;
  for (const auto& [name, probes] : rows_) {
    for (const std::string& probe : probes) by_probe[probe].insert(name);
  }
  std::map<std::set<std::string>, std::string> probe_of;
  for (const auto& traits : kSuites) {
    if (!suites.contains(traits.suite)) continue;
    for (const auto& probe : probes_of(traits.suite)) {
      const std::string name = fmt::format("{}/{}", traits.name, probe.id);
      EXPECT_TRUE(by_probe.contains(name)) << "nothing makes it fail: " << name;
      const auto [other, fresh] = probe_of.emplace(by_probe[name], name);
      EXPECT_TRUE(fresh) << name << " and " << other->second << " catch the same";
    }
  }
}

std::string Matrix::text() const {
  std::string text = "A backend that ... is caught by\n";
  for (const auto& [name, probes] : rows_) {
    text += "\n" + name + "\n";
    for (const std::string& probe : probes) text += "    " + probe + "\n";
  }
  return text;
}

}  // namespace casemate::conformance_tests
