#pragma once

#include <cstdint>

#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A listening socket in a level-triggered epoll set, for one thread. Where no descriptor is left
// for a connection it would be reported for ever; it is left alone for a moment instead, and
// reported again after that, as long as it takes. Who connects waits meanwhile.
class PatientListener {
 public:
  // `socket` is non-blocking and, as `events`, outlives this. It is reported with `data` from now
  // on, and so is the end of that moment: call `accept` each time. Throws `std::system_error`.
  PatientListener(int socket, int events, std::uint64_t data);
  // In a set of its own, for who polls: call `accept` each time that `fd` is readable.
  explicit PatientListener(int socket);
  int fd() const { return own_events_.get(); }

  // One connection, close-on-exec; empty where none is to be had now.
  sys::UniqueFd accept(sys::Blocking connection);
  // Whether it waits until that moment is over.
  bool is_paused() const { return paused_; }

 private:
  PatientListener(int socket, sys::UniqueFd events);
  void report(int descriptor, std::uint32_t what, int act) const;
  void pause();

  sys::UniqueFd own_events_;
  const int socket_;
  const int events_;
  const std::uint64_t data_;
  // Made before there is none left.
  sys::UniqueFd timer_;
  bool paused_ = false;
};

}  // namespace casemate::guest
