#pragma once

// Hostile probes against a backend, on a real instance: whether it does what it declares. Needs no
// test framework; a provider's own tests call it and look at the report:
//
//   conformance::Subject subject(backend);
//   const conformance::Report report = conformance::run_conformance(subject);
//   if (!report.passed()) std::puts(report.failures().c_str());

#include <chrono>
#include <functional>
#include <set>
#include <stop_token>
#include <string>

#include "casemate/conformance/report.h"
#include "casemate/conformance/subject.h"
#include "casemate/conformance/suite.h"

namespace casemate::conformance {

struct ConformanceOptions {
  // Empty: every suite; those whose gate is not declared are reported as skipped.
  std::set<Suite> suites{};
  // Only these probes of them, by id; empty: all.
  std::set<std::string> probes{};
  // The image is somebody's choice and no part of what is tried: one that has not the programs
  // which the probes run inside (programs_inside.h) is refused before them.
  bool refuses_images = false;
  // Told of each probe as it ends, on the calling thread.
  std::function<void(const ProbeResult&)> on_result{};
  std::stop_token stop{};
  // For the whole of one probe; a provider that is silent for longer fails it.
  std::chrono::nanoseconds patience = std::chrono::seconds(60);
  // Of programs that must run into their bound. They pass when that is told not before half of it
  // and not later than 3 s after it.
  std::chrono::nanoseconds program_bound = std::chrono::seconds(1);
};

// Runs every probe of the suites, whatever the others found, each in a call of its own, on a
// sandbox of a key of its own that is disposed at the end. A probe is skipped for one reason only:
// a capability (an egress mode, a transport) that it needs is not declared. Whatever it throws is
// its failure. Blocks for seconds; nothing it does harms a host, also when it succeeds.
//
// Throws `InvalidArgument` for a suite named in `suites` whose gate is not declared, and for probes
// that are in none of them; what the backend throws when the first sandbox is acquired, since then
// nothing can be tried; `SandboxImageInvalid` naming the programs that an image lacks;
// `SandboxCancelled` by `stop`.
Report run_conformance(Subject& subject, const ConformanceOptions& options = {});

}  // namespace casemate::conformance
