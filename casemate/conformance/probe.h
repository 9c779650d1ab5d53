#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "casemate/conformance/suite.h"
#include "casemate/core/declarations.h"
#include "casemate/core/vocabulary.h"

namespace casemate::conformance {

class Trial;

// One claim and the act that would show it false.
struct Probe {
  // Never changes between releases.
  std::string_view id;
  // What holds when it passes.
  std::string_view sentence;
  // Returns when the claim holds; throws `Unmet` or whatever a provider throws.
  void (*run)(Trial&);
  // Needed beside the suite's gate; skipped where it is not declared.
  std::optional<Capability> also = {};
  // What else must be declared: why the probe is skipped, or nothing.
  std::string (*undeclared)(const BackendDeclarations&) = nullptr;
  // The weakest rung at which the claim has to hold; skipped below it, and where none is declared.
  std::optional<Isolation> from = {};
  // The bound that it is about; skipped where that is not declared to be held.
  std::optional<Limit> held = {};
};

// In the order in which they run.
std::span<const Probe> probes_of(Suite suite);

// The tables, one a file.
std::span<const Probe> files_in_probes();
std::span<const Probe> files_out_probes();
std::span<const Probe> files_delete_probes();
std::span<const Probe> exec_probes();
std::span<const Probe> egress_probes();
std::span<const Probe> host_tools_probes();
std::span<const Probe> snapshot_probes();
std::span<const Probe> usability_probes();
std::span<const Probe> rung_probes();
// By subject; all of them together, and each table.
std::span<const Probe> isolation_probes();
std::span<const Probe> isolation_file_probes();
std::span<const Probe> isolation_process_probes();
std::span<const Probe> isolation_network_probes();
std::span<const Probe> isolation_kernel_probes();
std::span<const Probe> isolation_flood_probes();

}  // namespace casemate::conformance
