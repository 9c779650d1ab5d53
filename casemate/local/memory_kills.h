#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace casemate::local {

// Whose of a call's programs a process was that the kernel ended for want of memory. It counts the
// group of each, names none, and tells a program's parent no more than SIGKILL. So:
//
// * A program that ended by SIGKILL while the count rose was one of them, and that one is nobody
//   else's. Two that ended so for a single kill cannot be told apart: the first that is asked for
//   has it, even if it was ended by a kill of its own.
// * A kill that no program's end explains was of something that a program had started. Each program
//   that ran meanwhile may have been it, so it is every one's.
//
// A program that is asked for before the one whose end explains the kill is taken for concerned.
//
// Thread-safe.
class MemoryKills {
 public:
  // Whether a program is concerned that has ended, and during which the kernel's count went from
  // `before` to `now`. `killed`: it ended by SIGKILL. May throw `std::bad_alloc`.
  bool concern(std::uint64_t before, std::uint64_t now, bool killed);

 private:
  std::mutex mutex_;
  // By number, the first is 1: those that were the end of a program.
  std::vector<std::uint64_t> explained_;
};

}  // namespace casemate::local
