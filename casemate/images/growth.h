#pragma once

#include <cstdint>

#include "casemate/sys/unique_fd.h"

namespace casemate::images {

// How many bytes another process has written, by the kernel's events (inotify) and no looking about
// in between. Not thread-safe.
class Growth {
 public:
  // Of a file, or of the files in a directory and three levels below; borrowed. Where the kernel
  // gives no events (the user has too many watches) there are none, and nothing is refused.
  explicit Growth(int entry);

  // Readable when there may be more; -1 where there are no events.
  int descriptor() const { return events_.get(); }
  // Takes the events and counts, by what each file says is its size; links are not followed.
  std::uint64_t look();

 private:
  std::uint64_t count(int entry, int depth);
  void watch(int entry, std::uint32_t what);

  int entry_;
  sys::UniqueFd events_;
};

}  // namespace casemate::images
