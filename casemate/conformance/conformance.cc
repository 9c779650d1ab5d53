#include "casemate/conformance/conformance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/conformance/host_marks.h"
#include "casemate/conformance/probe.h"
#include "casemate/conformance/programs_inside.h"
#include "casemate/conformance/trial.h"
#include "casemate/core/errors.h"
#include "casemate/sys/deadline.h"

namespace casemate::conformance {
namespace {

using Clock = std::chrono::steady_clock;

// Why the suite cannot be run against what is declared; empty when it can.
std::string undeclared(Suite suite, const BackendDeclarations& declared) {
  const std::optional<Capability> gate = gate_of(suite);
  if (gate && !declared.capabilities.contains(*gate)) {
    return fmt::format("{} is not declared", to_string(*gate));
  }
  return {};
}

std::string undeclared(Suite suite, const Probe& probe, const BackendDeclarations& declared) {
  if (std::string reason = undeclared(suite, declared); !reason.empty()) return reason;
  if (probe.also && !declared.capabilities.contains(*probe.also)) {
    return fmt::format("{} is not declared", to_string(*probe.also));
  }
  if (probe.from && !(declared.isolation && meets_floor(*declared.isolation, *probe.from))) {
    return fmt::format("it is of rungs from {} upwards", to_string(*probe.from));
  }
  if (probe.held && !declared.enforceable_limits.contains(*probe.held)) {
    return fmt::format("a bound on {} is not declared", to_string(*probe.held));
  }
  return probe.undeclared != nullptr ? probe.undeclared(declared) : std::string();
}

class Run {
 public:
  Run(Subject& subject, const ConformanceOptions& options)
      : subject_(subject),
        options_(options),
        declared_(subject.backend().declarations()),
        key_{"conformance", fresh_mark(), "probes"} {
    report_.backend = declared_.name;
  }
  ~Run() { subject_.backend().dispose_scope(key_.scope, key_.thread_id); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Report go() {
    check_options();
    // What fails here would fail every probe alike.
    const auto first = subject_.backend().acquire(key_, subject_.spec(), control());
    if (options_.refuses_images && declared_.capabilities.contains(Capability::exec)) {
      refuse_lacking_programs(*first);
    }
    for (const auto& [suite, name, gate] : kSuites) {
      if (!options_.suites.empty() && !options_.suites.contains(suite)) continue;
      for (const Probe& probe : probes_of(suite)) {
        if (!options_.probes.empty() && !options_.probes.contains(std::string(probe.id))) continue;
        try_probe(suite, probe);
      }
    }
    return std::move(report_);
  }

 private:
  void check_options() const {
    std::set<std::string> unknown = options_.probes;
    for (const auto& [suite, name, gate] : kSuites) {
      const bool named = options_.suites.contains(suite);
      if (!options_.suites.empty() && !named) continue;
      const std::string reason = undeclared(suite, declared_);
      if (named && !reason.empty()) {
        throw InvalidArgument(fmt::format("suite {} cannot be run against {}: {}", to_string(suite),
                                          escape_for_display(declared_.name), reason),
                              "run the suites of what it declares, or have it declare more");
      }
      for (const Probe& probe : probes_of(suite)) unknown.erase(std::string(probe.id));
    }
    if (unknown.empty()) return;
    throw InvalidArgument(fmt::format("there is no probe '{}' in the suites to be run",
                                      escape_for_display(*unknown.begin())),
                          "name one that a run without a choice reports");
  }

  // Of those to be run.
  std::set<Suite> suites() const {
    std::set<Suite> all;
    for (const auto& [suite, name, gate] : kSuites) {
      if (!options_.suites.empty() && !options_.suites.contains(suite)) continue;
      const bool tried = std::ranges::any_of(probes_of(suite), [&](const Probe& probe) {
        return (options_.probes.empty() || options_.probes.contains(std::string(probe.id))) &&
               undeclared(suite, probe, declared_).empty();
      });
      if (tried) all.insert(suite);
    }
    return all;
  }

  void refuse_lacking_programs(Sandbox& sandbox) const {
    std::vector<std::string> lacking;
    try {
      const auto call = sandbox.open_call({}, control());
      lacking = lacking_programs(*call, suites(), control());
      call->close();
    } catch (const SandboxCancelled&) {
      throw;
    } catch (const std::exception&) {
      return;  // for the probes to find
    }
    if (lacking.empty()) return;
    throw SandboxImageInvalid(
        fmt::format("the image has not all that the probes run inside: {} is not there",
                    fmt::join(lacking, ", ")),
        "use an image with a shell, the GNU core utilities and Python 3, or run the suites that do "
        "without it");
  }

  CallControl control() const {
    return {.deadline = sys::deadline_after(options_.patience), .stop = options_.stop};
  }

  [[noreturn]] static void throw_stopped() {
    throw SandboxCancelled("the probes were stopped before all of them ran");
  }

  void try_probe(Suite suite, const Probe& probe) {
    if (options_.stop.stop_requested()) throw_stopped();
    ProbeResult result{
        .probe = std::string(probe.id), .suite = suite, .sentence = std::string(probe.sentence)};
    result.reason = undeclared(suite, probe, declared_);
    if (!result.reason.empty()) {
      result.status = Status::skipped;
    } else {
      const auto started = Clock::now();
      judge(probe, result);
      result.took = Clock::now() - started;
    }
    report_.results.push_back(std::move(result));
    if (options_.on_result) options_.on_result(report_.results.back());
  }

  void judge(const Probe& probe, ProbeResult& result) {
    const auto failed = [&](std::string_view step, std::string_view expected, std::string seen) {
      // What was stopped under a probe says nothing of the backend.
      if (options_.stop.stop_requested()) throw_stopped();
      result.status = Status::failed;
      result.reason = step;
      result.expected = expected;
      result.seen = std::move(seen);
    };
    constexpr std::string_view kStep = "an operation that has to succeed";
    try {
      in_a_call(probe);
    } catch (const Unmet& unmet) {
      failed(unmet.step(), unmet.expected(), unmet.seen());
    } catch (const SandboxCancelled&) {
      failed(kStep, "no refusal", "SandboxCancelled, though nobody asked for a stop");
    } catch (const SandboxError& refusal) {
      failed(kStep, "no refusal", shown(refusal));
    } catch (const std::exception& error) {
      failed(kStep, "no exception", escape_for_display(error.what()));
    }
  }

  void in_a_call(const Probe& probe) {
    const CallControl bound = control();
    with_call(subject_.backend(), key_, subject_.spec(), bound, [&](Sandbox& sandbox, Call& call) {
      Trial trial({.subject = subject_,
                   .sandbox = sandbox,
                   .call = call,
                   .key = key_,
                   .control = bound,
                   .program_bound = options_.program_bound});
      probe.run(trial);
    });
  }

  Subject& subject_;
  const ConformanceOptions& options_;
  const BackendDeclarations declared_;
  const SandboxKey key_;
  Report report_;
};

}  // namespace

std::span<const Probe> probes_of(Suite suite) {
  switch (suite) {
    case Suite::files_in:
      return files_in_probes();
    case Suite::files_out:
      return files_out_probes();
    case Suite::files_delete:
      return files_delete_probes();
    case Suite::exec:
      return exec_probes();
    case Suite::egress:
      return egress_probes();
    case Suite::host_tools:
      return host_tools_probes();
    case Suite::snapshot:
      return snapshot_probes();
    case Suite::usability:
      return usability_probes();
    case Suite::rung:
      return rung_probes();
    case Suite::isolation:
      return isolation_probes();
  }
  return {};
}

Report run_conformance(Subject& subject, const ConformanceOptions& options) {
  return Run(subject, options).go();
}

}  // namespace casemate::conformance
