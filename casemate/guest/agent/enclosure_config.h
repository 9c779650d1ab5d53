#pragma once

#include <string>

#include "casemate/guest/agent/enclosed_agent.h"
#include "casemate/guest/agent/keeper_messages.h"

namespace casemate::guest {

// What the process that keeps an enclosure prepared for its runtime.
struct EnclosureFiles {
  // The root directory, the guest program, and the sandbox's own /etc/machine-id.
  std::string root;
  std::string program;
  std::string machine_id;
};

// The config.json of a container with a kernel of its own: the agent as process 1 with
// no_new_privs and of root's rights those only that separate users take, a read-only root, and for
// whatever can be written file systems of that kernel's own, whose bytes together are the request's
// disk bound.
//
// No user namespace and no device: the runtime has its own way with both. The hierarchy that counts
// processes is there, and with it whatever else the kernel of the runtime shows in /sys/fs/cgroup,
// all of it of the sandbox alone and root's to write.
std::string enclosure_config(const CreateSandbox& request, const EnclosedPlan& plan,
                             const EnclosureFiles& files);

}  // namespace casemate::guest
