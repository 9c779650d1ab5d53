#pragma once

// The threads of one run: they wait together for requests, and whoever gets one does it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "casemate/base/log.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/poll.h"

namespace casemate {

// A pool in which the thread that waits for a request also does it, so that no hand-over lies
// between the two. There is always one more thread than are `Busy`: somebody waits whatever the
// others do. Threads are started when they are needed and end with the crew.
//
// A thread that does not come back from what it was busy with is left behind by `stop`, with
// everything that its job holds. Any method may be called from any thread.
class Crew {
  struct State;

 public:
  using Job = std::function<void()>;
  // Is told what names the descriptor.
  using Ready = std::function<void(std::uint64_t watched)>;

  // Starts the first thread. Throws `std::system_error`.
  explicit Crew(Log log);
  // `stop(0)`.
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Runs `job` on one of the threads. Dropped once the crew is stopping.
  void post(Job job);

  // Runs `ready` on one of the threads when there is something to read from `fd`, once until
  // `rearm`. `fd` must stay open until `forget`. Returns what names it.
  std::uint64_t watch(int fd, Ready ready);
  void rearm(int fd, std::uint64_t watched);
  // Drops `ready`; it may be running. Idempotent. The caller closes `fd` afterwards.
  void forget(std::uint64_t watched);

  // Runs `ring` on one of the threads once the time has come, once. A later `set_alarm` replaces
  // it.
  void on_alarm(Job ring);
  void set_alarm(std::optional<sys::SteadyTime> at);

  // Of a thread of the crew: what follows may take any time. Jobs outside it must not wait.
  class Busy {
   public:
    explicit Busy(const Crew& crew);
    ~Busy();
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    std::shared_ptr<State> state_;
  };

  // Ends the threads, waiting at most `patience` for those that are busy; a later call waits for
  // none of them. Returns how many are left behind. Not from a thread of the crew. In a forked
  // child of the host it does nothing.
  std::size_t stop(std::chrono::nanoseconds patience) noexcept;

 private:
  std::shared_ptr<State> state_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate
