#pragma once

// A subject whose programs only ask web servers and send what nobody asked for, as its egress mode
// lets them.

#include <functional>
#include <memory>
#include <string>

#include "casemate/conformance/subject.h"
#include "casemate/core/spec.h"

namespace casemate::conformance_tests {

// What a program is told when it asks `127.0.0.1:port`: a status, 0 for no answer.
using Rule = std::function<int(const SandboxSpec& spec, unsigned port)>;

// The true status of that server when `spec` allows it, else none.
int as_allowed(const SandboxSpec& spec, unsigned port);
// What the server answers, whatever is allowed.
int ask(unsigned port);

// What a program may send something to ("udp 127.0.0.1 4711", ear.h).
using Leak = std::function<bool(const SandboxSpec& spec, const std::string& place)>;
bool no_leak(const SandboxSpec& spec, const std::string& place);

// Declares exec, and egress `closed` and `allowlist`, held by `rule` but for what leaks.
std::unique_ptr<conformance::Subject> web_fake(Rule rule = as_allowed, Leak leak = no_leak);

}  // namespace casemate::conformance_tests
