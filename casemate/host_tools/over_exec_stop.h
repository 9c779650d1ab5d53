#pragma once

// Stopping a program that runs on after its exec: by what it wrote down about itself.

#include <chrono>
#include <cstdint>
#include <string_view>

#include "casemate/host_tools/over_exec_layout.h"
#include "casemate/host_tools/over_exec_provider.h"

namespace casemate {

// What became of SIGKILL.
enum class StopSignal : std::uint8_t {
  sent,
  // The number could not be read or is none, or `kill` failed.
  refused,
  // There was nothing to stop: the program was not started.
  absent,
  // The program was started and no number of it was found.
  unrecorded,
  // Whether a program runs could not be learned.
  unknown,
};

// To whom it went.
enum class StopReach : std::uint8_t { group, program, nothing };

std::string_view to_string(StopSignal value);
std::string_view to_string(StopReach value);

// The numbers are the guest's word, and a process that left the group was not met: `sent` does not
// mean stopped. Closing the call, or disposing the sandbox, does.
struct ProgramStop {
  StopSignal signal = StopSignal::unknown;
  StopReach reach = StopReach::nothing;
  friend bool operator==(const ProgramStop&, const ProgramStop&) = default;
};

// Whether the launcher itself said that it made a session (the file alone is the guest's word).
enum class SessionAnnounced : std::uint8_t { no, yes };

// Takes at most `patience` to find the numbers and as much again for the signal. Never throws.
ProgramStop stop_guest_program(const ExecAndFiles& guest, const GuestRunLayout& layout,
                               SessionAnnounced session,
                               std::chrono::nanoseconds patience) noexcept;

}  // namespace casemate
