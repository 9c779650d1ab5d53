#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Who holds a sandbox, in its agent: connections by which host processes say that they use it
// (keeper_messages.h), and how long the sandbox waits when the last one closed. For one thread.
class Leases {
 public:
  // `socket` is bound. `first` is a lease already, granted; `keep_idle_ms` what it wishes. Throws
  // `std::system_error`.
  Leases(sys::UniqueFd socket, sys::UniqueFd first, std::uint64_t keep_idle_ms);

  // From now on others can take one: that is how they see that the sandbox is ready.
  void start_listening();

  // Adds what is to be waited for.
  void add_to(std::vector<pollfd>& entries) const;
  // What became of what `add_to` added last, which began at `entries[from]`.
  void heed(const std::vector<pollfd>& entries, std::size_t from);

  // Nobody holds the sandbox, and nobody wished to wait any longer.
  bool over() const { return over_; }

 private:
  struct Lease {
    sys::UniqueFd connection;
    std::uint64_t keep_idle_ms;
    bool granted = false;
    bool closed = false;
  };

  void accept_one();
  void hear(Lease& lease);
  void drop_closed();
  bool has_granted() const;
  void set_timer(std::chrono::milliseconds after);
  void time_is_up();

  sys::UniqueFd socket_;
  sys::UniqueFd timer_;
  std::vector<Lease> leases_;
  // What the lease that closed last wished.
  std::uint64_t keep_idle_ms_ = 0;
  bool over_ = false;
};

}  // namespace casemate::guest
