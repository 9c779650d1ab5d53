// What a program can see and change of the host, and of what serves it. Each probe tries, from
// inside, what must not work; where it does, nothing comes of it: files are opened and not written,
// calls have arguments that cannot take effect, nothing is sent beyond loopback, only processes of
// the probe's own are touched, and what floods a place ends by itself.

#include <algorithm>
#include <vector>

#include "casemate/conformance/probe.h"

namespace casemate::conformance {

std::span<const Probe> isolation_probes() {
  static const std::vector<Probe> kAll = [] {
    std::vector<Probe> all;
    for (const auto table :
         {isolation_file_probes(), isolation_process_probes(), isolation_network_probes(),
          isolation_kernel_probes(), isolation_flood_probes()}) {
      all.insert(all.end(), table.begin(), table.end());
    }
    return all;
  }();
  return kAll;
}

}  // namespace casemate::conformance
