#pragma once

// The threads that run tools: a bounded number, and a bounded queue of what waits for them.

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "casemate/base/log.h"
#include "casemate/sys/owner_process.h"

namespace casemate::mcp {

struct PoolLimits {
  // Threads, and so jobs that run at a time.
  std::size_t max_running = 16;
  // Jobs that wait for a thread, and the bytes of the messages that they hold.
  std::size_t max_waiting = 256;
  std::size_t max_waiting_bytes = 64 * 1024 * 1024;
};

// Threads start when they are needed and end with the pool. Any method may be called from any
// thread.
class WorkerPool {
  struct State;

 public:
  using Job = std::function<void()>;

  WorkerPool(const PoolLimits& limits, Log log);
  // `stop(0)`.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `job`, which holds `bytes`, in the order of posting. False, and the job is dropped, when
  // the bounds are reached or the pool is stopping. Throws nothing; what a job throws is logged.
  bool post(std::size_t bytes, Job job) noexcept;
  // The same for housekeeping, which is never refused before the pool is told to stop, and is done
  // also then.
  void post_always(Job job) noexcept;

  // Takes no more jobs, drops those that wait (but for housekeeping), and waits at most `patience`
  // for the threads. One that does not come back is left behind with what its job holds. Returns
  // how many are. Not from a thread of the pool. In a forked child it does nothing.
  std::size_t stop(std::chrono::nanoseconds patience) noexcept;

 private:
  std::shared_ptr<State> state_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate::mcp
