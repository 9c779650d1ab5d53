#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/guest/agent/place.h"

namespace casemate::guest {

// What the child tells the exec-init when it could not become the program. Nothing arrives, only
// the end of the pipe, when execve succeeded.
struct ChildReport {
  enum class Stage : std::int32_t { prepare, directory, program };
  std::int32_t error = 0;
  Stage stage = Stage::prepare;
};

// All that a child needs to become a program, made before the vfork so that it allocates nothing.
class ProgramImage {
 public:
  // `environment` replaces the base entries (PATH, HOME, ...) of the same name.
  ProgramImage(std::vector<std::string> argv,
               const std::vector<std::pair<std::string, std::string>>& environment);
  ProgramImage(const ProgramImage&) = delete;
  ProgramImage& operator=(const ProgramImage&) = delete;

  // What execve is tried with, in order: the first word, or it in each directory of PATH.
  const std::vector<std::string>& candidates() const { return candidates_; }
  char* const* argv() const { return argv_pointers_.data(); }
  char* const* environment() const { return environment_pointers_.data(); }

 private:
  std::vector<std::string> argv_;
  std::vector<std::string> environment_;
  std::vector<std::string> candidates_;
  std::vector<char*> argv_pointers_;
  std::vector<char*> environment_pointers_;
};

// Descriptors of the child, all 3 or above and close-on-exec.
struct ChildDescriptors {
  // Its standard input where the host writes that, and where there is none.
  int in = -1;
  int no_input = -1;
  int out = -1;
  int err = -1;
  int report = -1;
  // Of the call's accounting groups.
  std::span<const int> groups;
};

enum class Input : bool { none, piped };

// Starts a child that becomes the program: a session of its own, default signals, no descriptor
// beyond 0, 1, 2, umask 022, raised OOM score, then what the place takes away. Returns when it is
// the program or has reported why not; -1 with errno when there could be no child.
//
// Until then the child lives in the caller's own memory, as of vfork: copying that, and every page
// that either of them writes, takes longer than all that the child does.
pid_t start_program(const ProgramImage& image, int directory, Input input,
                    const ChildDescriptors& descriptors, Place& place) noexcept;

// The same ahead, while nobody has asked for a program: the child does all that depends on none,
// and waits at `order` for `send_order`, or for its end. A copy of the caller, which may go on
// meanwhile. -1 with errno when there could be no child.
pid_t start_waiting_child(int order, const ChildDescriptors& descriptors, Place& place) noexcept;
// Which program, by the encoded `Exec`. Whether all of it was sent: a child that got less becomes
// none.
bool send_order(int order, std::string_view exec, int directory, Input input) noexcept;

}  // namespace casemate::guest
