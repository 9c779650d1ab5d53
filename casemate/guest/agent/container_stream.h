#pragma once

#include <cstdint>

namespace casemate::guest {

// Beside the agent of an engine's container that shares no directory with its host
// (`ContainerPlan::first_lease_ms`), started there by the engine for one host process: waits until
// the agent is ready, takes a lease that wishes `keep_idle_ms` and serves the stream that its
// standard input and output are (serve_stream.h). The lease, and with the last one the sandbox,
// ends with the stream. Returns the exit status.
int run_container_stream(std::uint64_t keep_idle_ms) noexcept;

}  // namespace casemate::guest
