#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"

namespace casemate::images {

inline constexpr int kFileNumber = 3;

// A program of this machine that does one thing and ends.
struct Command {
  // A name looked up on PATH, or a path.
  std::string program;
  // Its arguments, the name that it is called by included.
  std::vector<std::string> words;
  // Where it runs, and where what it prints goes: descriptors, borrowed.
  int directory = -1;
  int log = -1;
  // Given to it as `kFileNumber`, borrowed; -1: none.
  int file = -1;
  // While it runs, and not more often than every 100 ms, `look` is called when `events`, borrowed,
  // is readable; -1: never. What it throws ends the program.
  int events = -1;
  std::function<void()> look{};
  // What it does, for a refusal: "... came while an image was fetched".
  std::string_view what;
  // What the caller may do about a deadline that was too short; may be empty.
  std::string_view late_hint;
};

// Runs it, with the environment of this process, standard input empty and a process group of its
// own, which is ended when this ends early. Returns its exit status, 128 and the number for a
// signal. Throws `SandboxCancelled`, `SandboxTimeout` by `control`, `std::system_error` where it
// cannot be started (ENOENT: there is none).
int run_command(const Command& command, const CallControl& control);

}  // namespace casemate::images
