#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "casemate/guest/agent/identity.h"
#include "casemate/guest/machine/machine_plan.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// What one process of the hypervisor is started with, beside the plan.
struct HypervisorParts {
  // Given to it as descriptors 3 and 4, and as its standard output and error.
  sys::UniqueFd stream;
  sys::UniqueFd control;
  sys::UniqueFd console;
};

struct Hypervisor {
  pid_t pid = -1;
  sys::UniqueFd process;
};

// Starts the hypervisor as somebody who has nothing: ids that nobody else has, no capability, a
// root of its own in which there are the machine's read-only /usr, four devices and the files of
// the plan (and /dev/kvm where the plan says so), namespaces of its own for all that there is a
// namespace for, an empty environment, no descriptor but those given. It ends with the calling
// process. It joins the control groups of those files first, where there are any.
//
// What it does not protect: what everybody may read in /usr. Whoever breaks out of the guest is
// this process, behind the filter that the hypervisor's own `-sandbox` argument installs.
//
// The caller is root of the machine or of a user namespace, single-threaded, with a mount namespace
// of its own. Throws `std::system_error`.
Hypervisor start_hypervisor(const MachinePlan& plan, const std::vector<std::string>& arguments,
                            HypervisorParts parts, const SandboxIds& ids,
                            const std::vector<sys::UniqueFd>& groups);

}  // namespace casemate::guest
