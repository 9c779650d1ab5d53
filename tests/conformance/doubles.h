#pragma once

// Backends that differ from a good one in exactly one fact, for probes to catch.

#include <set>
#include <string>
#include <vector>

#include "casemate/conformance/suite.h"
#include "tests/conformance/faulty.h"
#include "tests/conformance/web_fake.h"

namespace casemate::conformance_tests {

struct Double {
  // What is wrong with it.
  std::string name;
  // The suites that use what it replaces; to the others it is the good one.
  std::set<conformance::Suite> suites;
  Faults faults;
};

std::vector<Double> file_doubles();
std::vector<Double> exec_doubles();

// On a sandbox that keeps calls apart.
std::vector<Double> host_tool_doubles();

// Of the egress suite, by the rule that a program's way out obeys.
struct WebDouble {
  std::string name;
  Rule rule = as_allowed;
  Leak leak = no_leak;
};
std::vector<WebDouble> web_doubles();

}  // namespace casemate::conformance_tests
