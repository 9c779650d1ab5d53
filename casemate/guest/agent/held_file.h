#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "casemate/guest/agent/place.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A program's file that is not written yet: a FIFO, at which whoever opens it to read waits.
//
// For an exec-init, before the program is started. Everything is the program's user's, and what
// that does to its own directory meanwhile it does to itself: nothing here follows a name that it
// could have put there. Methods throw `std::system_error`.
class HeldFile {
 public:
  // Makes the directory of `path`, which must not be there, and the FIFO in it, and beside it the
  // list of what is to be imported, if that is anything (support/sitecustomize.py).
  HeldFile(const std::string& path, const std::vector<std::string>& imports, Place& place);

  // Readable once somebody opened the FIFO; -1 after `forget_event`.
  int opened_event() const { return opened_.get(); }
  void forget_event() { opened_.reset(); }

  // Puts a regular file with this content, at most `kMaxHeldSource` bytes, aside: all that may fail
  // for want of room, and nobody's to see yet. Called once, before `fill`.
  void stage(std::string_view source);
  // Puts that file in the FIFO's place, and then lets the reader have the same, and its end.
  void fill(std::string_view source);

 private:
  void write_file(const char* name, std::string_view content);

  Place& place_;
  std::string name_;
  sys::UniqueFd directory_;
  // Both of its ends: a reader that comes meets a writer, and no end before there was one.
  sys::UniqueFd fifo_;
  sys::UniqueFd opened_;
};

}  // namespace casemate::guest
