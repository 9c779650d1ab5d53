#pragma once

#include <memory>

#include "casemate/guest/agent/starter.h"

namespace casemate::guest {

// Sandboxes of the microvm backend: a process of its own for each, which keeps a virtual machine as
// the sandbox's directory says (machine_plan.h).
std::unique_ptr<Starter> make_machine_starter();

}  // namespace casemate::guest
