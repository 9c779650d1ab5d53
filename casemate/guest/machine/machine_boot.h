#pragma once

#include <cstdint>

#include "casemate/guest/agent/program_group.h"
#include "casemate/guest/machine/machine_messages.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// What the first process of a virtual machine does with the kernel's own parts, each once. Every
// function throws `std::system_error` naming its subject.

// /proc, /sys and /dev of a kernel that has just started; standard streams that lead nowhere.
void mount_kernel_file_systems();

// Loads every module of `kModuleOrder`, and frees the memory of their files.
void load_modules();

// Waits until the device is there. ETIMEDOUT when it does not come.
void wait_for_device(const char* path);

// Leaves the initial file system, which nothing can be mounted over, for an empty one with /proc,
// /sys, /dev and the image, read-only, at /image. Nothing of the initial one is left visible.
void enter_machine_root();
inline constexpr char kImageDirectory[] = "/image";

// The control groups of the machine's one sandbox.
struct MachineGroups {
  // cgroup.procs of the one that its agent, the calls and what they serve files by live in.
  sys::UniqueFd agent;
  ProgramGroup programs;
};
// Makes both, within one that bounds the memory of all; processes and processor time are bounded
// for programs alone. For each 0: no bound.
MachineGroups make_machine_groups(std::uint64_t memory_bytes, std::uint64_t processes,
                                  std::uint64_t cpu_millis);

// Takes the host's seed into the kernel's generator, and its time.
void set_randomness_and_clock(const MachineStart& start);

}  // namespace casemate::guest
