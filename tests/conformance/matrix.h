#pragma once

// Which probes catch which backends that are wrong in one fact.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "casemate/conformance/subject.h"
#include "casemate/conformance/suite.h"

namespace casemate::conformance_tests {

// Probes by "files-in/parents-are-created": ids are unique within a suite only.
class Matrix {
 public:
  // Runs the suites against what `name` says is wrong with it; a test failure when no probe catches
  // it, when one is skipped that is about no bound, or when it takes longer than two minutes.
  void try_out(const std::string& name, conformance::Subject& subject,
               const std::set<conformance::Suite>& suites);

  // Test failures: a probe of these suites that catches nothing, two that catch the same.
  void expect_every_probe_catches_its_own(const std::set<conformance::Suite>& suites) const;

  // All of it, for people.
  std::string text() const;

 private:
  // In the order in which they were tried.
  std::vector<std::pair<std::string, std::set<std::string>>> rows_;
};

}  // namespace casemate::conformance_tests
