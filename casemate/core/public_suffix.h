#pragma once

#include <string>

namespace casemate {

// Whether anybody can get a name of their own directly below `name` (canonical): the Public Suffix
// List says so, both its parts, by the copy that is built into libpsl. Names that the list does not
// know are none, whatever they look like.
bool is_public_suffix(const std::string& name);

}  // namespace casemate
