#pragma once

#include <string>

#include "casemate/core/control.h"

namespace casemate::images {

// Waits until the file system that holds `path` has opened it and read from it once, or refused to:
// what that says is asked again by whoever wants to know. One that a program or a network serves
// may never answer, and no call into it can be taken back, so a thread of its own asks, and stays
// behind when the wait ends early; with neither a deadline nor anybody to stop it nothing is asked.
// One that falls silent later holds its caller. Of this process at most 16 are asked at a time; the
// next is `SandboxUnavailable`. Throws `SandboxCancelled`, `SandboxTimeout` by
// `control`, `std::system_error`.
void wait_for_answer(const std::string& path, const CallControl& control);

}  // namespace casemate::images
