#pragma once

// The threads that run tools: a bounded number, and a bounded queue of what waits for them.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "casemate/base/log.h"
#include "casemate/mcp/share.h"
#include "casemate/sys/owner_process.h"

namespace casemate::mcp {

struct PoolLimits {
  // Threads, and so jobs that run at a time.
  std::size_t max_running = 16;
  // Jobs that wait for a thread, and the memory that they hold. A job that a thread is free for
  // does not wait, whatever it holds.
  std::size_t max_waiting = 256;
  std::size_t max_waiting_bytes = 64 * 1024 * 1024;
};

// Whose a job is. Equal names are one caller.
struct JobOwner {
  std::string name{};
  Share share = Share::whole;
};

// Threads start when they are needed and end with the pool. Any method may be called from any
// thread.
//
// Callers take turns: whoever has many jobs waiting delays another's by one of them at most, and
// holds of each limit no more than his share.
class WorkerPool {
  struct State;

 public:
  using Job = std::function<void()>;

  WorkerPool(const PoolLimits& limits, Log log);
  // `stop(0)`.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `job`, which holds `bytes`; those of one caller in the order of posting. Returns a number
  // to withdraw it by; 0, and the job is dropped, when the bounds are reached or the pool is
  // stopping. Throws nothing; what a job throws is logged.
  std::uint64_t post(std::size_t bytes, Job job, const JobOwner& owner = {}) noexcept;

  // Drops a job that still waits, before this returns; its place is free. Anything else is left
  // alone.
  void withdraw(std::uint64_t number) noexcept;

  // The same as `post` for housekeeping, which waits for no job: it has threads of its own, a few,
  // which end when it is done. It is never refused, and done also behind `stop`.
  void post_always(Job job) noexcept;

  // Jobs that wait for a thread.
  std::size_t waiting() const noexcept;

  // Takes no more jobs, drops those that wait (but for housekeeping), and waits at most `patience`
  // for the threads. One that does not come back is left behind with what its job holds. Returns
  // how many are. Not from a thread of the pool. In a forked child it does nothing.
  std::size_t stop(std::chrono::nanoseconds patience) noexcept;

 private:
  std::shared_ptr<State> state_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate::mcp
