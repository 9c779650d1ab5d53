#pragma once

#include <sys/types.h>

#include <functional>

namespace casemate::soak {

// Where a process is killed: after it has done so many system calls, those of all its threads
// counted together, and before its next. What else it does in between nobody can see.
struct Step {
  int number = 0;
};

enum class Victim {
  // The process that runs `body`.
  host,
  // The first process that `body` leaves to itself: its keeper.
  keeper,
};

struct Stepped {
  // The victim got so far; else it ended by itself before.
  bool killed = false;
  // Of the victim's, up to its end.
  int calls = 0;
  // How the process of `body` ended, as waitpid says it.
  int status = 0;
};

// Runs `body` in a forked process and kills the victim with SIGKILL at that step. Whatever the
// victim made lives on as it would after any kill. The caller must be a child subreaper and have
// no other children.
Stepped run_and_kill(Victim victim, Step step, const std::function<void()>& body);

// Waits, at most `seconds`, until this process, a child subreaper, has no descendants left.
bool wait_for_descendants(int seconds);

}  // namespace casemate::soak
