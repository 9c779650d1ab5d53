#pragma once

// Good subjects for the conformance suites, and why one cannot be had here.

#include <memory>
#include <string>
#include <vector>

#include "casemate/conformance/subject.h"
#include "casemate/core/backend.h"

namespace casemate::conformance_tests {

// A real guest program over plain directories: runs programs for real, without privileges, and
// under sanitizers.
std::shared_ptr<SandboxBackend> plain_backend();

// The fake, which keeps files of its own and runs nothing: file suites only.
std::unique_ptr<conformance::Subject> fake_subject(Isolation claimed = Isolation::process);

// The linux backend with a state directory of its own.
std::shared_ptr<SandboxBackend> linux_backend();
// The same, each sandbox reached by one multiplexed stream, without control groups.
std::shared_ptr<SandboxBackend> streamed_linux_backend();
// Empty when it works here.
std::string why_no_linux();

}  // namespace casemate::conformance_tests
