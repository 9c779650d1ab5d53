#pragma once

// How long things that outlive boots were left unused. The clock that says the day cannot tell: it
// is set, by hand, by the network or by a flat battery, years forwards and backwards. So idle time
// is counted, from one look to the next, by the clock that nobody sets.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace casemate::images {

struct Clocks {
  // Which start of the machine it is; empty where that cannot be told.
  std::string boot;
  // Since then, sleep counted too (CLOCK_BOOTTIME). Nobody sets it.
  std::chrono::seconds running{};
  // Since 1970. Anybody may have set it since it was read last.
  std::chrono::seconds wall{};
};
Clocks read_clocks();

// What bears the time of its last use.
struct UsedThing {
  // Valid UTF-8.
  std::string name;
  // By the wall clock of that moment, seconds since 1970.
  std::int64_t used = 0;
};

// How long each of `things` was not used, in their order, and what the next look needs, written to
// a small file in a directory of theirs. Never an hour longer than it was, but over the start of a
// machine; shorter, where the truth cannot be told:
//
//  - A thing that was used since the last look is as idle as its time says, while the wall clock
//    since then moved as the other one did (an hour apart at most), and else not at all.
//  - A thing that was not, is idle for as long as it was at the last look, and for the time since:
//    by the clock that nobody sets; over the start of a machine by the wall clock, but for
//    `most_over_a_boot` at most and never for less than nothing.
//  - With no earlier look, or none that can be read, none was idle.
class IdleTimes {
 public:
  // Looks. `directory` is borrowed for as long as this lives.
  IdleTimes(int directory, const std::vector<UsedThing>& things,
            std::chrono::seconds most_over_a_boot, const Clocks& now);

  const std::vector<std::chrono::seconds>& idle() const { return idle_; }

  // Makes this look the last one. Throws `std::system_error`; then the one before stays.
  void write() const;

 private:
  int directory_;
  std::vector<std::chrono::seconds> idle_;
  std::string record_;
};

// The file's name: nothing of anybody's else begins with a dot.
inline constexpr char kIdleTimesName[] = ".idle.json";

}  // namespace casemate::images
