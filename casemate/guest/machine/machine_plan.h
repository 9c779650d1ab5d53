#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace casemate::guest {

// Stands in an argument of a fresh start for the ticks of the time stamp counter in a millisecond,
// which whoever starts it measures: not a part of what a saved machine is found by.
inline constexpr std::string_view kTimeStampKhz = "@time_stamp_khz@";

// How one machine is started: written by the host into the sandbox's directory
// (`kMachinePlanName` of
// guest/agent/keeper_messages.h), read by the process that keeps the machine. Lines of a key, a
// blank and a value; no value holds a line's end.
struct MachinePlan {
  // The hypervisor's file.
  std::string program{};
  // Its arguments in every case, at a fresh start, and at one from a saved machine. The files are
  // at /machine/NAME for it; descriptor 3 is the stream, 4 its control line, its standard output
  // the guest's console.
  std::vector<std::string> arguments{};
  std::vector<std::string> fresh_arguments{};
  std::vector<std::string> restored_arguments{};
  struct File {
    std::string name;
    std::string path;
    friend bool operator==(const File&, const File&) = default;
  };
  // Read-only.
  std::vector<File> files{};
  // Of the guest's memory, what programs and their files may have; 0: all.
  std::uint64_t program_bytes = 0;
  // Of all programs together, in thousandths of a processor; 0: all that the machine has.
  std::uint64_t cpu_millis = 0;
  // Whether the hypervisor is given /dev/kvm.
  bool uses_kvm = false;
  // The file in which a machine that is ready is saved, and found by the next; empty: none.
  std::string saved{};
  friend bool operator==(const MachinePlan&, const MachinePlan&) = default;
};

// Throws `std::invalid_argument` for a value with a line's end.
std::string encode(const MachinePlan& plan);
// Throws `std::invalid_argument` for what is not as `encode` writes it.
MachinePlan decode_machine_plan(std::string_view text);

}  // namespace casemate::guest
