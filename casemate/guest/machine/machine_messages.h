#pragma once

// What a virtual machine's first process and the process outside that keeps the machine say to each
// other on the one stream that there is, before the multiplexer takes it over. Both are the same
// build (the outer one carries the inner one), so plain values travel as they lie in memory. The
// outer one takes nothing from the inner one that it does not check.
//
// The guest says `MachineReady` once. What comes after it may be said to any number of machines
// that were restored from the same memory: everything that has to differ between them comes in
// `MachineStart`, and nothing is drawn from the guest's own pool of randomness before that.

#include <cstddef>
#include <cstdint>

#include "casemate/guest/agent/keeper_messages.h"

namespace casemate::guest {

inline constexpr std::uint64_t kMachineMagic = 0x31306d7674736163;  // "castvm01"
inline constexpr std::size_t kSeedBytes = 64;

// Guest: its devices are there, the image is mounted, it waits for `MachineStart`.
struct MachineReady {
  std::uint64_t magic;
  // 0, or the errno of what failed; then the guest ends.
  std::int32_t error;
  // What failed, for a person; ends with a NUL.
  char text[244];
};

// Host: what this one machine is for.
struct MachineStart {
  std::uint64_t magic;
  // Credited in full by the guest's kernel, then mixed into its generator.
  unsigned char seed[kSeedBytes];
  // Since 1970.
  std::int64_t seconds;
  std::int64_t nanoseconds;
  // All programs and their files together; 0: as much as the machine has.
  std::uint64_t memory_bytes;
  // Of all programs together, in thousandths of a processor; 0: all that the machine has.
  std::uint64_t cpu_millis;
  // As if a host asked a keeper: work directory, quota, resource limits. Control groups and the
  // name are not read.
  CreateSandbox sandbox;
};

// Guest: the agent listens, and the multiplexer's bytes are next; or why not, and then the guest
// ends.
struct MachineStarted {
  std::uint64_t magic;
  std::int32_t error;
  char text[508];
};

// Where the guest finds what it was started with.
inline constexpr char kModuleDirectory[] = "/modules";
// The names of the files in it, one a line, in the order in which they are to be loaded.
inline constexpr char kModuleOrder[] = "/modules/order";
// Read-only squashfs, the whole disk.
inline constexpr char kImageDevice[] = "/dev/vda";
// Port 1 of the first virtio-serial device.
inline constexpr char kStreamDevice[] = "/dev/vport0p1";

}  // namespace casemate::guest
