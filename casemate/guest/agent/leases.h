#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "casemate/guest/agent/patient_listener.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Who uses a sandbox: the connections to its lease socket (keeper_messages.h). When the last one
// that was granted closed, and the time that it wished the sandbox to be kept went by, the sandbox
// is over. For one thread, which waits for `fd` and then calls `handle`.
class Leases {
 public:
  // `socket` is bound and not listened on yet; `first` is granted from the start. Throws
  // `std::system_error`, as every method does.
  Leases(sys::UniqueFd socket, sys::UniqueFd first, std::uint64_t keep_idle_ms);

  // From now on others see that the sandbox is there.
  void start_listening();

  // Readable when there is something to handle.
  int fd() const { return events_.get(); }
  void handle();

  // How many there are that were granted.
  std::size_t granted() const;

  // Nobody has a lease, and nobody wished to wait longer.
  bool over() const { return over_; }

 private:
  struct Lease {
    sys::UniqueFd connection;
    std::uint64_t keep_idle_ms;
    bool granted = false;
    bool closed = false;
  };

  void await(int descriptor, std::uint64_t subject);
  void take(Lease lease);
  void accept_one();
  void hear(Lease& lease);
  void drop_closed();
  void set_timer(std::chrono::milliseconds after);
  void time_is_up();

  sys::UniqueFd socket_;
  sys::UniqueFd events_;
  sys::UniqueFd timer_;
  std::optional<PatientListener> listener_;
  std::map<std::uint64_t, Lease> leases_;
  std::uint64_t next_;
  // What the lease that closed last wished.
  std::uint64_t keep_idle_ms_ = 0;
  bool over_ = false;
};

}  // namespace casemate::guest
