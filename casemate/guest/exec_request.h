#pragma once

#include <map>
#include <string>

#include "casemate/core/exec.h"

namespace casemate::guest {

// The wire form of a request whose paths are resolved against `work` (the call's `work/`), and
// whose environment wins over `image_environment`. Throws `InvalidArgument`, `SandboxPathRefused`,
// `SandboxFileError` (E2BIG).
std::string encode_request(const ExecRequest& request, const std::string& work,
                           const std::map<std::string, std::string>& image_environment);

}  // namespace casemate::guest
