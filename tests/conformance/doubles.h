#pragma once

// Backends that differ from a good one in exactly one fact, for probes to catch.

#include <set>
#include <string>
#include <vector>

#include "casemate/conformance/suite.h"
#include "tests/conformance/bwrap_place.h"
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

// On one that has snapshots.
std::vector<Double> snapshot_doubles();

// On a sandbox that holds bounds: floods that it lets through in part, or tells wrongly.
std::vector<Double> flood_doubles();

// A place by bwrap (bwrap_place.h) with one hole, or with one thing that honest programs miss.
struct PlaceDouble {
  std::string name;
  std::set<conformance::Suite> suites;
  Walls walls;
  Faults faults;
};
// For root. What they need on the host is put into `scratch`.
std::vector<PlaceDouble> isolation_doubles(const std::string& scratch);
std::vector<PlaceDouble> usability_doubles();

// Of the egress suite, by the rule that a program's way out obeys.
struct WebDouble {
  std::string name;
  Rule rule = as_allowed;
  Leak leak = no_leak;
};
std::vector<WebDouble> web_doubles();

}  // namespace casemate::conformance_tests
