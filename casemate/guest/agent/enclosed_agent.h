#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace casemate::guest {

// What a kernel of a sandbox's own takes of memory for itself, beside what its programs and their
// files do.
inline constexpr std::uint64_t kOwnKernelBytes = 192 * 1024 * 1024;

// What its keeper gives to the first process of a place with a kernel of its own.
struct EnclosedPlan {
  std::string work_dir;
  std::uint64_t open_files = 0;
  // Of one call; 0: no bound.
  std::uint64_t processes = 0;
  std::uint64_t cpu_seconds = 0;
  // Of each directory that a call has to itself, /tmp and /dev/shm.
  std::uint64_t directory_bytes = 0;
};

// As words of its command line, behind the program.
inline std::vector<std::string> encode(const EnclosedPlan& plan) {
  return {"enclosed",
          plan.work_dir,
          std::to_string(plan.open_files),
          std::to_string(plan.processes),
          std::to_string(plan.cpu_seconds),
          std::to_string(plan.directory_bytes)};
}

// What it says twice before the stream begins, as it lies in memory (both sides are the same
// build): at once, having done nothing, and when it is ready. In between the other side says
// `kEnclosedGo`, or nothing to one that runs on this machine's kernel, which it would change.
struct EnclosedGreeting {
  char magic[8];
  std::int32_t error;
  // What failed, for a person.
  char text[252];
  // Release and version of the kernel that it runs on.
  char kernel[160];
};
inline constexpr char kEnclosedMagic[8] = {'c', 'a', 's', 'e', 'm', 'a', 't', 'e'};
inline constexpr char kEnclosedGo = 'g';

// Release and version of this process's kernel, as in the greeting. Throws `std::system_error`.
std::string kernel_of_this_process();

// The agent of a sandbox whose kernel is not the host's (gVisor's): process 1 of a container, whose
// calls have user ids and namespaces of their own (account_place.h), reached over its standard
// input and output, two pipes that become one multiplexed stream (serve_stream.h). Nothing else
// leads out.
//
// Ends, and with it every process of the container, when the stream ends: who holds the sandbox
// and for how long is known outside (enclosure.h). Returns the exit status.
int run_enclosed_agent(const EnclosedPlan& plan) noexcept;

}  // namespace casemate::guest
