#pragma once

#include <string>
#include <string_view>

#include "casemate/core/sandbox.h"

namespace casemate::local {

// Tells one file behind a program's interpreter from another: device, inode, size and times of
// whatever its name means in sandboxes of `image` (as a spec spells it). Empty where that cannot
// change, as in an image of the store, or where nothing is found under the name. Reads nothing of
// the file and never throws.
std::string interpreter_mark(std::string_view image, const ExpectedProgram& program) noexcept;

}  // namespace casemate::local
