#pragma once

#include <string>
#include <string_view>

namespace casemate::microvm {

// What a saved machine has of the machine that it was saved on, beside its hypervisor: the
// processor (what a guest is shown of it, and how fast it counts), the kernel, whose the state of a
// machine under KVM is, and which machine it is.
struct HostFacts {
  // What /proc/cpuinfo says of the first.
  std::string processor{};
  // Of uname.
  std::string kernel_release{};
  // Of /etc/machine-id; empty where there is none.
  std::string machine_id{};
};

HostFacts look_at_host_identity();

// Differs where a machine saved on the one must not be restored on the other, and is the same at
// every look at the same machine: nothing in it changes while it runs.
std::string host_identity(const HostFacts& facts);

// Differs for every other build of that program, wherever it lies; empty where it cannot be read.
std::string program_identity(const std::string& path);

}  // namespace casemate::microvm
