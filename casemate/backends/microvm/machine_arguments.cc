#include "casemate/backends/microvm/machine_arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace casemate::microvm {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kStepMiB = 64;
// What the default bounds need: memory that is not touched costs nothing, and one saved machine
// serves all that need no more.
constexpr std::uint64_t kLeastMiB = 960;
// Measured on Debian 12's cloud kernel: 52 MiB of itself and its first file system, and what it
// needs at work.
constexpr std::uint64_t kKernelMiB = 128;
// It keeps a 64th of the memory about the memory.
constexpr std::uint64_t kPageTableShare = 64;

// With a bound on what the emulator translates: its own would be up to 1 GiB, which no limit of the
// machine counts.
constexpr char kEmulation[] = "tcg,tb-size=128";

// Where a device is: the small machine has no PCI.
std::string_view bus_of(MachineType type) {
  return type == MachineType::microvm ? "device" : "pci";
}

std::string kernel_line(const MachineShape& shape) {
  // Nothing but failures on the console; a panic ends the machine at once.
  std::string line = "quiet loglevel=3 panic=-1 reboot=t console=ttyS0 8250.nr_uarts=1";
  // An emulated machine has no clock that a guest could measure the counter by.
  if (shape.accelerator == Accelerator::tcg) {
    line += fmt::format(" tsc_early_khz={}", guest::kTimeStampKhz);
  }
  // What follows is for the first process.
  return line + " -- machine";
}

}  // namespace

std::uint64_t machine_memory_mib(std::uint64_t program_bytes) {
  const std::uint64_t programs = (program_bytes + kMiB - 1) / kMiB;
  const std::uint64_t all = programs + programs / kPageTableShare + kKernelMiB;
  return std::max((all + kStepMiB - 1) / kStepMiB * kStepMiB, kLeastMiB);
}

void fill_arguments(guest::MachinePlan& plan, const MachineShape& shape) {
  const std::string_view bus = bus_of(shape.type);
  plan.arguments = {
      "-machine",
      shape.type == MachineType::microvm ? "microvm,acpi=on" : "q35,usb=off,vmport=off",
      "-accel",
      shape.accelerator == Accelerator::kvm ? "kvm" : kEmulation,
      "-cpu",
      shape.accelerator == Accelerator::kvm ? "host" : "max",
      "-m",
      fmt::format("{}M", shape.memory_mib),
      "-smp",
      fmt::format("{}", std::max(shape.processors, 1U)),
      "-nodefaults",
      "-no-user-config",
      "-no-reboot",
      "-display",
      "none",
      "-sandbox",
      "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
      "-chardev",
      "stdio,id=console,signal=off",
      "-serial",
      "chardev:console",
      "-chardev",
      "socket,id=stream,fd=3",
      "-device",
      fmt::format("virtio-serial-{},max_ports=2", bus),
      "-device",
      "virtserialport,nr=1,chardev=stream",
      "-chardev",
      "socket,id=control,fd=4",
      "-mon",
      "chardev=control,mode=control",
      "-drive",
      // Nobody writes to it, and a lock would need a right that the hypervisor has not.
      "if=none,id=image,file=/machine/image,format=raw,readonly=on,file.locking=off",
      "-device",
      fmt::format("virtio-blk-{},drive=image", bus),
  };
  plan.fresh_arguments = {"-kernel",         "/machine/kernel", "-initrd",
                          "/machine/initrd", "-append",         kernel_line(shape)};
  plan.restored_arguments = {"-incoming", "defer"};
  plan.uses_kvm = shape.accelerator == Accelerator::kvm;
}

}  // namespace casemate::microvm
