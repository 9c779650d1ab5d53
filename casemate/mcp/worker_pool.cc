#include "casemate/mcp/worker_pool.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/sys/thread.h"

namespace casemate::mcp {
namespace {

// One that ends a sandbox whose engine hangs must not hold up the others; more of them would be
// threads that nobody counted on.
constexpr std::size_t kMaxHousekeepers = 4;

}  // namespace

// Shared with the threads, which may outlive the pool.
struct WorkerPool::State : std::enable_shared_from_this<State> {
  struct Waiting {
    std::uint64_t number;
    std::size_t bytes;
    Job job;
  };
  // Of one caller.
  struct Lane {
    Share share = Share::whole;
    std::deque<Waiting> waiting{};
    std::size_t bytes = 0;
    std::size_t running = 0;
  };
  using Lanes = std::map<std::string, Lane, std::less<>>;

  State(const PoolLimits& given, Log where) : limits(given), log(std::move(where)) {}

  const PoolLimits limits;
  const Log log;
  std::mutex mutex;
  std::condition_variable work;   // for threads
  std::condition_variable ended;  // for `stop`
  Lanes lanes;
  // Whose turn was last.
  std::string last_lane;
  std::uint64_t last_number = 0;
  std::size_t waiting_count = 0;
  std::size_t waiting_bytes = 0;
  std::size_t running = 0;
  std::size_t threads = 0;
  std::deque<Job> housekeeping;
  std::size_t housekeepers = 0;
  bool stopping = false;

  // All below: with the lock held.

  bool may_wait(const Lane& lane, std::size_t bytes) const {
    if (stopping) return false;
    const auto part = [&lane](std::size_t total) { return part_of(total, lane.share); };
    if (running + waiting_count < limits.max_running && lane.running < part(limits.max_running)) {
      return true;  // a thread is free for it
    }
    return waiting_count < limits.max_waiting && lane.waiting.size() < part(limits.max_waiting) &&
           bytes <= limits.max_waiting_bytes && lane.bytes <= part(limits.max_waiting_bytes) &&
           bytes <= part(limits.max_waiting_bytes) - lane.bytes &&
           waiting_bytes <= limits.max_waiting_bytes - bytes;
  }

  bool may_run(const Lane& lane) const {
    return !lane.waiting.empty() && lane.running < part_of(limits.max_running, lane.share);
  }

  // The next caller whose turn it is, or the end.
  Lanes::iterator next_lane() {
    auto at = lanes.upper_bound(last_lane);
    for (std::size_t seen = 0; seen < lanes.size(); ++seen, ++at) {
      if (at == lanes.end()) at = lanes.begin();
      if (may_run(at->second)) return at;
    }
    return lanes.end();
  }

  // A thread will look. False when none could be had at all.
  bool see_to_it() {
    if (running + waiting_count > threads && threads < limits.max_running) {
      try {
        sys::start_thread([self = shared_from_this()] { self->run(); }).detach();
        ++threads;
      } catch (const std::system_error& error) {
        write_log(log, LogLevel::warning, fmt::format("no thread to be had: {}", error.what()));
        if (threads == 0) return false;
      }
    }
    work.notify_one();
    return true;
  }

  Job take(Lane& lane, std::deque<Waiting>::iterator which) {
    Job job = std::move(which->job);
    lane.bytes -= which->bytes;
    waiting_bytes -= which->bytes;
    lane.waiting.erase(which);
    --waiting_count;
    return job;
  }

  void leave(Lanes::iterator lane) {
    if (lane->second.waiting.empty() && lane->second.running == 0) lanes.erase(lane);
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      Lanes::iterator lane;
      work.wait(lock, [&] { return stopping || (lane = next_lane()) != lanes.end(); });
      if (stopping) break;
      last_lane = lane->first;
      ++lane->second.running;
      ++running;
      Job job = take(lane->second, lane->second.waiting.begin());
      lock.unlock();
      do_safely(job);
      job = nullptr;  // what it holds goes before others wait for the lock
      lock.lock();
      --running;
      --lane->second.running;
      leave(lane);
      // A caller who had all of his share running may go on, by whoever is free.
      work.notify_one();
    }
    --threads;
    ended.notify_all();
  }

  void keep_house() {
    std::unique_lock lock(mutex);
    while (!housekeeping.empty()) {
      Job job = std::move(housekeeping.front());
      housekeeping.pop_front();
      lock.unlock();
      do_safely(job);
      job = nullptr;
      lock.lock();
    }
    --housekeepers;
    ended.notify_all();
  }

  // Without the lock.
  void do_safely(const Job& job) const {
    try {
      job();
    } catch (const std::exception& failure) {
      write_log(log, LogLevel::error,
                fmt::format("a call failed: {}", escape_for_display(failure.what())));
    }
  }
};

WorkerPool::WorkerPool(const PoolLimits& limits, Log log)
    : state_(std::make_shared<State>(limits, std::move(log))) {}

WorkerPool::~WorkerPool() { stop(std::chrono::nanoseconds(0)); }

std::uint64_t WorkerPool::post(std::size_t bytes, Job job, const JobOwner& owner) noexcept {
  try {
    const std::lock_guard lock(state_->mutex);
    const auto lane = state_->lanes.try_emplace(owner.name, State::Lane{owner.share}).first;
    if (!state_->may_wait(lane->second, bytes)) {
      state_->leave(lane);
      return 0;
    }
    const std::uint64_t number = ++state_->last_number;
    lane->second.waiting.push_back({number, bytes, std::move(job)});
    lane->second.bytes += bytes;
    state_->waiting_bytes += bytes;
    ++state_->waiting_count;
    if (state_->see_to_it()) return number;
    job = state_->take(lane->second, std::prev(lane->second.waiting.end()));
    state_->leave(lane);
    return 0;
  } catch (const std::exception&) {  // no memory
    return 0;
  }
}

void WorkerPool::withdraw(std::uint64_t number) noexcept {
  Job dropped;  // its end may post housekeeping: not under the lock
  const std::lock_guard lock(state_->mutex);
  for (auto lane = state_->lanes.begin(); lane != state_->lanes.end(); ++lane) {
    auto& waiting = lane->second.waiting;
    for (auto at = waiting.begin(); at != waiting.end(); ++at) {
      if (at->number != number) continue;
      dropped = state_->take(lane->second, at);
      state_->leave(lane);
      return;
    }
  }
}

void WorkerPool::post_always(Job job) noexcept {
  try {
    const std::lock_guard lock(state_->mutex);
    // Behind the end nobody waits for a thread any more.
    if (!state_->stopping || state_->threads > 0) {
      state_->housekeeping.push_back(std::move(job));
      if (state_->housekeepers == kMaxHousekeepers) return;
      sys::start_thread([state = state_] { state->keep_house(); }).detach();
      ++state_->housekeepers;
      return;
    }
  } catch (const std::system_error& error) {  // no thread: those that are there, or this one
    const std::lock_guard lock(state_->mutex);
    if (state_->housekeepers > 0 || state_->housekeeping.empty()) return;
    job = std::move(state_->housekeeping.back());
    state_->housekeeping.pop_back();
  } catch (const std::exception&) {
    return;
  }
  state_->do_safely(job);
}

std::size_t WorkerPool::waiting() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting_count;
}

std::size_t WorkerPool::stop(std::chrono::nanoseconds patience) noexcept {
  if (!owner_.is_current()) return 0;
  // Their ends may post housekeeping: not under the lock.
  std::vector<std::deque<State::Waiting>> dropped;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    for (auto& [name, lane] : state_->lanes) {
      lane.bytes = 0;
      dropped.push_back(std::exchange(lane.waiting, {}));
    }
    state_->waiting_bytes = 0;
    state_->waiting_count = 0;
    state_->work.notify_all();
  }
  dropped.clear();
  std::unique_lock lock(state_->mutex);
  const auto left = [this] { return state_->threads + state_->housekeepers; };
  state_->ended.wait_for(lock, patience, [&left] { return left() == 0; });
  return left();
}

}  // namespace casemate::mcp
