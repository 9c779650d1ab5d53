#pragma once

// Waiting for many descriptors from several threads at once.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

enum class Trigger : std::uint8_t {
  // Reported for as long as there is something to read, to any number of waiting threads.
  level,
  // Reported to one thread, then not again before `rearm`.
  once,
};

// An epoll instance. May be used from several threads; a descriptor is taken out by its last close.
// Methods throw `std::system_error`.
class Epoll {
 public:
  Epoll();

  // Watches for something to read, or for the other side's end. `id` is what `wait` reports.
  void add(int fd, std::uint64_t id, Trigger trigger);
  // Watches it no more, also where another process still has it open. Never throws: what was not
  // watched is as good.
  void remove(int fd) noexcept;
  // Watches anew what was added with `Trigger::once`.
  void rearm(int fd, std::uint64_t id);

  // Waits without end until something is ready and fills in the ids. Returns how many, at least 1.
  std::size_t wait(std::span<std::uint64_t> ids);
  // The same without waiting: 0 when nothing is.
  std::size_t look(std::span<std::uint64_t> ids);

 private:
  std::size_t take(std::span<std::uint64_t> ids, int milliseconds);

  UniqueFd epoll_;
};

// A non-blocking eventfd that counts: each `take_one` undoes one `raise_event`.
UniqueFd make_counting_event();
// False when there was nothing to take.
bool take_one(int event) noexcept;

// A timer on the steady clock, readable once its time has come. Not set at first.
UniqueFd make_timer();
// Sets it anew, also to a time that is past; absent: never. It is not readable then until it comes.
void set_timer(int timer, std::optional<SteadyTime> at);

}  // namespace casemate::sys
