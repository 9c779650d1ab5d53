#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The control line of a hypervisor, as far as a machine is saved and restored by it: one command at
// a time, of which only whether it was done is read. The hypervisor may be in the guest's hands: a
// line of its is at most 64 KiB, and it has a bounded time for each answer.
//
// Every method throws `std::system_error`: EPROTO for what is no answer, ETIMEDOUT, EPIPE, and
// EREMOTEIO with what it said for a command that it refused.
class ControlLine {
 public:
  // A connected Unix stream socket. Waits for the greeting.
  explicit ControlLine(sys::UniqueFd socket);

  // Brings a machine that waits for a saved one into the state that `saved` (read from its
  // beginning) holds, and lets it run.
  void restore(int saved);
  // Writes the machine's state and memory to `saved`, and leaves it standing.
  void save(int saved);
  void go_on();

 private:
  std::string command(std::string_view text, int descriptor = -1);
  std::string read_line();
  void wait_until(std::string_view query, std::string_view done, std::string_view failed);

  sys::UniqueFd socket_;
  std::string buffer_;
};

}  // namespace casemate::guest
