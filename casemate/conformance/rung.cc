// The declared rung is what can be seen of it.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <vector>

#include "casemate/conformance/evidence.h"
#include "casemate/conformance/probe.h"
#include "casemate/conformance/trial.h"

namespace casemate::conformance {
namespace {

void the_rung_is_shown(Trial& trial) {
  const Isolation claimed = *trial.declarations().isolation;
  Call* const call = trial.declares(Capability::exec) ? &trial.call() : nullptr;
  const std::vector<std::string> lacking =
      lacking_evidence(claimed, gather_evidence(trial.sandbox(), call, trial.control()));
  if (lacking.empty()) return;
  throw Unmet(call == nullptr ? "looking at the place from outside, for it runs no programs"
                              : "looking at the place from inside and from outside",
              fmt::format("all that shows the rung {}", to_string(claimed)),
              fmt::format("not seen: {}", fmt::join(lacking, "; ")));
}

// `process` claims nothing.
std::string no_claim(const BackendDeclarations& declared) {
  if (!declared.isolation) return "no rung is declared";
  return *declared.isolation == Isolation::process ? "process is no boundary" : "";
}

}  // namespace

std::span<const Probe> rung_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {.id = "the-rung-is-shown",
       .sentence = "the declared rung is what can be seen from inside and from outside",
       .run = the_rung_is_shown,
       .undeclared = no_claim},
  });
  return kProbes;
}

}  // namespace casemate::conformance
