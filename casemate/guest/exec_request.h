#pragma once

#include <string>

#include "casemate/core/exec.h"

namespace casemate::guest {

// The wire form of a request whose paths are resolved against `work` (the call's `work/`). Throws
// `InvalidArgument`, `SandboxPathRefused`, `SandboxFileError` (E2BIG).
std::string encode_request(const ExecRequest& request, const std::string& work);

}  // namespace casemate::guest
