#pragma once

namespace casemate::guest {

// The whole life of the first process of a virtual machine: mounts what a kernel gives, loads the
// modules that came with it, mounts the image, makes one sandbox as the host says
// (machine_messages.h) and connects its agent to the host's stream. When the host ends the stream,
// or anything fails, the machine is switched off.
//
// Inside, the sandbox is what a sandbox of the linux backend is on a machine of its own: the
// keeper, the agent and the calls' scopes are the same code. Only ever pid 1; never returns.
[[noreturn]] void run_machine() noexcept;

}  // namespace casemate::guest
