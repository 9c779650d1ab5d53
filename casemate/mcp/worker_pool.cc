#include "casemate/mcp/worker_pool.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "casemate/base/utf8.h"

namespace casemate::mcp {

// Shared with the threads, which may outlive the pool.
struct WorkerPool::State : std::enable_shared_from_this<State> {
  struct Waiting {
    std::size_t bytes;
    Job job;
  };

  State(const PoolLimits& given, Log where) : limits(given), log(std::move(where)) {}

  const PoolLimits limits;
  const Log log;
  std::mutex mutex;
  std::condition_variable work;   // for threads
  std::condition_variable ended;  // for `stop`
  std::deque<Waiting> waiting;
  std::deque<Job> housekeeping;
  std::size_t waiting_bytes = 0;
  std::size_t threads = 0;
  std::size_t idle = 0;
  bool stopping = false;

  // With the lock held: somebody will look at the queues. False when no thread could be had at all.
  bool see_to_it() {
    const std::size_t queued = waiting.size() + housekeeping.size();
    if (idle < queued && threads < limits.max_running) {
      try {
        std::thread([self = shared_from_this()] { self->run(); }).detach();
        ++threads;
      } catch (const std::system_error& error) {
        write_log(log, LogLevel::warning, fmt::format("no thread to be had: {}", error.what()));
        if (threads == 0) return false;
      }
    }
    work.notify_one();
    return true;
  }

  Job next(std::unique_lock<std::mutex>& lock) {
    ++idle;
    work.wait(lock, [this] { return stopping || !housekeeping.empty() || !waiting.empty(); });
    --idle;
    Job job;
    if (!housekeeping.empty()) {
      job = std::move(housekeeping.front());
      housekeeping.pop_front();
    } else if (!stopping) {
      job = std::move(waiting.front().job);
      waiting_bytes -= waiting.front().bytes;
      waiting.pop_front();
    }
    return job;
  }

  void run() {
    std::unique_lock lock(mutex);
    while (Job job = next(lock)) {
      lock.unlock();
      try {
        job();
      } catch (const std::exception& failure) {
        write_log(log, LogLevel::error,
                  fmt::format("a call failed: {}", escape_for_display(failure.what())));
      }
      job = nullptr;  // what it holds goes before others wait for the lock
      lock.lock();
    }
    --threads;
    ended.notify_all();
  }
};

WorkerPool::WorkerPool(const PoolLimits& limits, Log log)
    : state_(std::make_shared<State>(limits, std::move(log))) {}

WorkerPool::~WorkerPool() { stop(std::chrono::nanoseconds(0)); }

bool WorkerPool::post(std::size_t bytes, Job job) noexcept {
  try {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopping || state_->waiting.size() >= state_->limits.max_waiting ||
        bytes > state_->limits.max_waiting_bytes - state_->waiting_bytes) {
      return false;
    }
    state_->waiting.push_back({bytes, std::move(job)});
    state_->waiting_bytes += bytes;
    if (state_->see_to_it()) return true;
    state_->waiting_bytes -= bytes;
    state_->waiting.pop_back();
    return false;
  } catch (const std::exception&) {  // no memory
    return false;
  }
}

void WorkerPool::post_always(Job job) noexcept {
  Job here;
  try {
    const std::lock_guard lock(state_->mutex);
    // Behind the end of the threads nobody would do it.
    if (state_->stopping && state_->threads == 0) {
      here = std::move(job);
    } else {
      state_->housekeeping.push_back(std::move(job));
      if (!state_->see_to_it()) {
        here = std::move(state_->housekeeping.back());
        state_->housekeeping.pop_back();
      }
    }
  } catch (const std::exception&) {
    return;
  }
  if (here) here();
}

std::size_t WorkerPool::stop(std::chrono::nanoseconds patience) noexcept {
  if (!owner_.is_current()) return 0;
  // Their ends may post housekeeping: not under the lock.
  std::deque<State::Waiting> dropped;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    dropped.swap(state_->waiting);
    state_->waiting_bytes = 0;
    state_->work.notify_all();
  }
  dropped.clear();
  std::unique_lock lock(state_->mutex);
  state_->ended.wait_for(lock, patience, [this] { return state_->threads == 0; });
  return state_->threads;
}

}  // namespace casemate::mcp
