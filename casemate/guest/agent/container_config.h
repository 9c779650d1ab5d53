#pragma once

#include <string>
#include <string_view>

#include "casemate/guest/agent/identity.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/guest/agent/starter.h"

namespace casemate::guest {

// Descriptors of pid 1 of a container, which its runtime passes on: the connection to the keeper,
// and the guest program, which needs no file in the container then.
inline constexpr int kContainerKeeper = 3;
inline constexpr int kContainerProgram = 4;
inline constexpr int kContainerDescriptors = 2;

// The config.json of one sandbox's container, by the OCI runtime specification 1.0: its own
// namespaces of every kind, user ids that nobody else has, the keeper's template as a read-only
// root, the agent as pid 1 with no_new_privs and of root's rights those only that making calls
// takes.
//
// What is left to the agent, because it makes a scope for each call: the programs' system call
// filter, the parts of /proc that are hidden from them, their limits and the loss of every
// capability (linux_place.h). A filter or covered parts of /proc here would be in its way: the
// kernel mounts no new /proc where a part of the old one is covered.
//
// `ids` are two; `groups_path` is empty where the runtime shall name no control group. `devices`
// says whether the template has device nodes of its own or views of the machine's, which some
// runtimes lose on the way: those are bound one by one.
std::string container_config(const SandboxIds& ids, std::string_view groups_path,
                             TemplateDevices devices);

}  // namespace casemate::guest
