#include "casemate/host_tools/crew.h"

#include <fmt/format.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/epoll.h"
#include "casemate/sys/signals.h"
#include "casemate/sys/thread.h"

namespace casemate {
namespace {

// What `Epoll` reports for our own descriptors; those of others are counted from there on.
enum : std::uint64_t { kStop = 0, kJobs = 1, kAlarm = 2, kFirstWatched = 3 };

}  // namespace

struct Crew::State : std::enable_shared_from_this<Crew::State> {
  explicit State(Log log_to) : log(std::move(log_to)) {
    epoll.add(stop_event.get(), kStop, sys::Trigger::level);
    epoll.add(job_event.get(), kJobs, sys::Trigger::level);
    epoll.add(timer.get(), kAlarm, sys::Trigger::once);
  }

  Log log;
  sys::UniqueFd stop_event = sys::make_event();
  sys::UniqueFd job_event = sys::make_counting_event();
  sys::UniqueFd timer = sys::make_timer();
  sys::Epoll epoll;

  std::mutex mutex;
  std::condition_variable ended;
  bool stopping = false;
  std::size_t threads = 0;
  std::size_t busy = 0;
  std::deque<Job> jobs;
  std::map<std::uint64_t, std::shared_ptr<const Ready>> watched;
  std::uint64_t next_watched = kFirstWatched;
  std::shared_ptr<const Job> alarm;

  // With `mutex` held.
  void start_thread() {
    const sys::SignalsBlocked blocked;
    sys::start_thread([self = shared_from_this()] { self->serve(); }).detach();
    ++threads;
  }

  void become_busy() {
    const std::lock_guard lock(mutex);
    ++busy;
    if (busy < threads || stopping) return;
    try {
      start_thread();
    } catch (const std::exception& error) {
      // Without it nobody waits until this thread is back: slower, never wrong.
      write_log(
          log, LogLevel::warning,
          fmt::format("host tools: no thread to be had: {}", escape_for_display(error.what())));
    }
  }

  void come_back() {
    const std::lock_guard lock(mutex);
    --busy;
    if (stopping) ended.notify_all();
  }

  void serve() {
    try {
      std::array<std::uint64_t, 1> ready{};
      while (true) {
        epoll.wait(ready);
        if (ready[0] == kStop) break;
        handle(ready[0]);
      }
    } catch (const std::exception& error) {
      write_log(
          log, LogLevel::error,
          fmt::format("host tools: a thread cannot wait: {}", escape_for_display(error.what())));
    }
    const std::lock_guard lock(mutex);
    --threads;
    ended.notify_all();
  }

  void handle(std::uint64_t id) {
    if (id == kJobs) {
      if (!sys::take_one(job_event.get())) return;
      Job job;
      {
        const std::lock_guard lock(mutex);
        if (jobs.empty()) return;
        job = std::move(jobs.front());
        jobs.pop_front();
      }
      run(job);
      return;
    }
    if (id == kAlarm) {
      std::shared_ptr<const Job> job;
      {
        const std::lock_guard lock(mutex);
        job = alarm;
      }
      if (job) run(*job);
      return;
    }
    std::shared_ptr<const Ready> ready;
    {
      const std::lock_guard lock(mutex);
      if (const auto found = watched.find(id); found != watched.end()) ready = found->second;
    }
    if (ready) run([&] { (*ready)(id); });
  }

  void run(const Job& job) noexcept {
    try {
      job();
    } catch (const std::exception& error) {
      report(error.what());
    } catch (...) {
      report("an exception of no known kind");
    }
  }

  void report(std::string_view what) noexcept {
    write_log(log, LogLevel::error,
              fmt::format("host tools: a job failed: {}", escape_for_display(what)));
  }
};

Crew::Busy::Busy(const Crew& crew) : state_(crew.state_) { state_->become_busy(); }

Crew::Busy::~Busy() { state_->come_back(); }

Crew::Crew(Log log) : state_(std::make_shared<State>(std::move(log))) {
  const std::lock_guard lock(state_->mutex);
  state_->start_thread();
}

Crew::~Crew() { stop(std::chrono::nanoseconds{0}); }

void Crew::post(Job job) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopping) return;
    state_->jobs.push_back(std::move(job));
  }
  sys::raise_event(state_->job_event.get());
}

std::uint64_t Crew::watch(int fd, Ready ready) {
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(state_->mutex);
    id = state_->next_watched++;
    state_->watched.emplace(id, std::make_shared<const Ready>(std::move(ready)));
  }
  state_->epoll.add(fd, id, sys::Trigger::once);
  return id;
}

void Crew::rearm(int fd, std::uint64_t watched) { state_->epoll.rearm(fd, watched); }

void Crew::forget(std::uint64_t watched) {
  std::shared_ptr<const Ready> dropped;
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->watched.find(watched);
  if (found == state_->watched.end()) return;
  // What the job holds may end here, and must not find the mutex taken.
  dropped = std::move(found->second);
  state_->watched.erase(found);
}

void Crew::on_alarm(Job ring) {
  const std::lock_guard lock(state_->mutex);
  state_->alarm = std::make_shared<const Job>(std::move(ring));
}

void Crew::set_alarm(std::optional<sys::SteadyTime> at) {
  sys::set_timer(state_->timer.get(), at);
  state_->epoll.rearm(state_->timer.get(), kAlarm);
}

std::size_t Crew::stop(std::chrono::nanoseconds patience) noexcept {
  if (!owner_.is_current()) return 0;
  std::deque<Job> jobs;
  std::map<std::uint64_t, std::shared_ptr<const Ready>> watched;
  std::shared_ptr<const Job> alarm;
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->stopping, true)) patience = {};
  jobs.swap(state_->jobs);
  watched.swap(state_->watched);
  alarm.swap(state_->alarm);
  sys::raise_event(state_->stop_event.get());
  const auto until = sys::deadline_after(patience);
  // Threads that are not busy come back by themselves, at once.
  state_->ended.wait(lock, [this] { return state_->threads <= state_->busy; });
  state_->ended.wait_until(lock, until, [this] { return state_->threads == 0; });
  const std::size_t left = state_->threads;
  lock.unlock();
  return left;
}

}  // namespace casemate
