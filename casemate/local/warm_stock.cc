#include "casemate/local/warm_stock.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <utility>

#include "casemate/local/interpreter_mark.h"
#include "casemate/local/lease.h"
#include "casemate/sys/thread.h"

namespace casemate::local {
namespace {

// After something was taken: where there are few processors, making the next at once would slow
// down the very run that it was taken for.
constexpr std::chrono::milliseconds kLull{20};

}  // namespace

WarmStock::WarmStock(WarmPool pool, Makers makers, Log log)
    : pool_(std::move(pool)), makers_(std::move(makers)), log_(std::move(log)) {}

WarmStock::~WarmStock() {
  if (!owner_.is_current()) {
    // There is no such thread here, and the calls are the parent's.
    static_cast<void>(thread_.release());
    return;
  }
  thread_.reset();
}

// Under the lock.
void WarmStock::wish(Haste haste) {
  wish_ = true;
  if (haste == Haste::yes) hurry_ = true;
  resting_ = false;
  if (!thread_ && owner_.is_current()) {
    thread_ = std::make_unique<std::jthread>(
        sys::start_thread<std::jthread>([this](const std::stop_token& stop) { work(stop); }));
  }
  wished_.notify_one();
}

void WarmStock::begin() {
  const std::lock_guard lock(mutex_);
  if (!thread_) wish(Haste::yes);
}

WarmStock::Ready WarmStock::take_sandbox(std::string_view fingerprint) {
  const std::lock_guard lock(mutex_);
  wish(ready_.empty() ? Haste::yes : Haste::no);
  while (!ready_.empty()) {
    Ready ready = std::move(ready_.back());
    ready_.pop_back();
    const HeldSandbox& sandbox = *ready.sandbox;
    if (sandbox.record.fingerprint == fingerprint && lease_holds(sandbox.lease.get())) return ready;
  }
  return {};
}

void WarmStock::tend(const std::shared_ptr<const HeldSandbox>& sandbox) {
  if (!pool_.program) return;
  const std::lock_guard lock(mutex_);
  if (tended_.try_emplace(sandbox->record.id, Tended{sandbox, {}}).second) wish(Haste::no);
}

std::unique_ptr<Call> WarmStock::take_program(std::string_view id, const ExpectedProgram& program,
                                              const CallControl& control) {
  // Ended, if at all, without the lock.
  Calls spoilt;
  std::unique_ptr<guest::AgentCall> call;
  {
    const std::lock_guard lock(mutex_);
    if (!pool_.program || *pool_.program != program) return nullptr;
    spoilt = drop_spoilt();
    const auto found = tended_.find(id);
    if (found == tended_.end()) return nullptr;
    wish(found->second.calls.empty() ? Haste::yes : Haste::no);
    if (found->second.calls.empty()) return nullptr;
    call = std::move(found->second.calls.front());
    found->second.calls.erase(found->second.calls.begin());
  }
  call->take_into_use(control);
  return call;
}

bool WarmStock::wait_until_full(const CallControl& control) {
  std::unique_lock lock(mutex_);
  if (!thread_ || wish_) wish(Haste::yes);
  const auto until = control.deadline.value_or(std::chrono::steady_clock::time_point::max());
  return rested_.wait_until(lock, control.stop, until, [&] { return resting_; }) && !failed_;
}

void WarmStock::forget(std::string_view id) {
  Calls calls;
  const std::lock_guard lock(mutex_);
  const auto found = tended_.find(id);
  if (found == tended_.end()) return;
  calls = std::move(found->second.calls);
  tended_.erase(found);
}

// Under the lock. Takes out what no program shall get any more: calls or interpreters that were
// killed, and all where the interpreter's file is another one now.
WarmStock::Calls WarmStock::drop_spoilt() {
  Calls dropped;
  std::string mark = interpreter_mark(pool_.spec.image.value_or("host"), *pool_.program);
  const bool outdated = std::exchange(mark_, std::move(mark)) != mark_;
  for (auto& [id, tended] : tended_) {
    const auto spoilt = std::ranges::stable_partition(
        tended.calls, [&](const auto& call) { return !outdated && call->still_holds(); });
    std::ranges::move(spoilt, std::back_inserter(dropped));
    tended.calls.erase(spoilt.begin(), spoilt.end());
  }
  return dropped;
}

void WarmStock::work(const std::stop_token& stop) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!wished_.wait(lock, stop, [&] { return wish_; })) return;
      wished_.wait_for(lock, stop, kLull, [&] { return hurry_; });
      if (stop.stop_requested()) return;
      wish_ = false;
      hurry_ = false;
    }
    bool failed = false;
    try {
      makers_.prepare(stop);
      std::size_t made = 0;
      while (!stop.stop_requested() && (make_program() || make_sandbox(stop)) &&
             may_go_on(++made)) {
      }
    } catch (const std::exception& failure) {
      write_log(log_, LogLevel::warning, fmt::format("warm pool: {}", failure.what()));
      failed = true;
    }
    const std::lock_guard lock(mutex_);
    failed_ = failed;
    resting_ = !wish_;
    if (resting_) rested_.notify_all();
  }
}

// After so many in one turn. Where one is the end of another (the memory of a sandbox that holds
// not as many as are wished) making them would go on for ever. False: somebody wished meanwhile, so
// that there is another turn; if nobody did, throws what to log.
bool WarmStock::may_go_on(std::size_t made) {
  const std::lock_guard lock(mutex_);
  const std::size_t places = pool_.sandboxes + pool_.programs * (pool_.sandboxes + tended_.size());
  if (made <= 2 * places) return true;
  if (wish_) return false;
  throw std::runtime_error(
      fmt::format("{} were made for {} places and did not stay: more programs than the sandbox's "
                  "memory holds, or an interpreter that ends by itself",
                  made, places));
}

// Each returns whether it made one.
bool WarmStock::make_sandbox(const std::stop_token& stop) {
  {
    const std::lock_guard lock(mutex_);
    if (ready_.size() >= pool_.sandboxes) return false;
  }
  Ready ready = makers_.sandbox(stop);
  tend(ready.sandbox);
  const std::lock_guard lock(mutex_);
  ready_.push_back(std::move(ready));
  return true;
}

bool WarmStock::make_program() {
  if (!pool_.program) return false;
  std::shared_ptr<const HeldSandbox> sandbox;
  Calls spoilt;
  std::vector<Tended> dead;
  {
    const std::lock_guard lock(mutex_);
    spoilt = drop_spoilt();
    for (auto at = tended_.begin(); at != tended_.end();) {
      if (!lease_holds(at->second.sandbox->lease.get())) {
        dead.push_back(std::move(at->second));
        at = tended_.erase(at);
        continue;
      }
      if (at->second.calls.size() < pool_.programs) sandbox = at->second.sandbox;
      ++at;
    }
  }
  if (!sandbox) return false;
  auto call = makers_.program(sandbox);
  const std::lock_guard lock(mutex_);
  const auto found = tended_.find(sandbox->record.id);
  // Otherwise the sandbox ends in this moment, and the call with it.
  if (found != tended_.end()) found->second.calls.push_back(std::move(call));
  return true;
}

}  // namespace casemate::local
