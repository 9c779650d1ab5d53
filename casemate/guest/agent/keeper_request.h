#pragma once

#include <cstddef>
#include <vector>

#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/starter.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Whether a host's request, which came with so many descriptors, is one that it may make.
bool is_sound(const CreateSandbox& request, std::size_t descriptors);

// Of a sound request with all its descriptors: what its sandbox is started with, sockets in its
// state directory included, which are bound and not listened on yet. What the keeper keeps of it is
// in `sandbox` then. Throws `std::system_error`.
StartPlan take_apart(const CreateSandbox& request, std::vector<sys::UniqueFd> descriptors,
                     KeptSandbox& sandbox);

}  // namespace casemate::guest
