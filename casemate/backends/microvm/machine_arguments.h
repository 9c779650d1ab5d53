#pragma once

// The one place where a hypervisor's command line is made.

#include <cstdint>
#include <string>
#include <string_view>

#include "casemate/backends/microvm/accelerator.h"
#include "casemate/guest/machine/machine_plan.h"

namespace casemate::microvm {

// What kind of machine a guest sees: QEMU's small one without buses to look through, or a whole
// one.
enum class MachineType { microvm, q35 };

struct MachineShape {
  MachineType type = MachineType::microvm;
  Accelerator accelerator = Accelerator::tcg;
  std::uint64_t memory_mib = 0;
  unsigned processors = 1;
};

// How much memory a machine is given whose programs and their files may take so much: what the
// kernel takes for itself besides, in steps of 64 MiB, so that few kinds of machines are saved.
std::uint64_t machine_memory_mib(std::uint64_t program_bytes);

// Fills in the hypervisor's arguments; its files are called kernel, initrd and image.
//
// No network, no display, no disk but the image (read-only), nothing of a user's configuration; one
// serial port for the guest's console, one stream. The hypervisor's system call filter is on, with
// all that it can deny denied.
void fill_arguments(guest::MachinePlan& plan, const MachineShape& shape);

}  // namespace casemate::microvm
