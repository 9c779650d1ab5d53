#pragma once

#include <sys/types.h>

#include <optional>

#include "casemate/guest/agent/place.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The processes of an exec, as its init has them: the program, and whatever else has lost its
// parent. Nobody else may reap. Methods throw `std::system_error` unless they say otherwise.
class ExecChildren {
 public:
  // From here on SIGCHLD is blocked and SIGPIPE ignored.
  explicit ExecChildren(Place& place);

  // Readable when one of them may have ended.
  int event() const { return event_.get(); }

  // Of the children the one whose end is the exec's.
  void set_program(pid_t pid) { program_ = pid; }
  // -1 once it was reaped: from then on the id may be another's.
  pid_t program() const { return program_; }
  const std::optional<int>& program_status() const { return program_status_; }
  // Ends and reaps it at once, and forgets it.
  void drop_program() noexcept;

  // Reaps whatever has ended; false when there are no children left.
  bool reap();
  // Kills and reaps until there is nothing left; false when that took too long.
  bool end_all() noexcept;

 private:
  Place& place_;
  sys::UniqueFd event_;
  pid_t program_ = -1;
  std::optional<int> program_status_;
};

}  // namespace casemate::guest
