#include "casemate/backends/linux/warm_stock.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "casemate/backends/linux/lease.h"

namespace casemate::linux_backend {
namespace {

constexpr std::string_view kHostImage = "host";

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
void WarmStock::wish() {
  wish_ = true;
  resting_ = false;
  if (!thread_ && owner_.is_current()) {
    thread_ = std::make_unique<std::jthread>([this](const std::stop_token& stop) { work(stop); });
  }
  wished_.notify_one();
}

WarmStock::Ready WarmStock::take_sandbox(std::string_view fingerprint) {
  const std::lock_guard lock(mutex_);
  wish();
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
  if (tended_.try_emplace(sandbox->record.id, Tended{sandbox, {}}).second) wish();
}

std::unique_ptr<Call> WarmStock::take_program(std::string_view id, const ExpectedProgram& program) {
  // Ended, if at all, without the lock.
  Calls outdated;
  std::unique_ptr<guest::AgentCall> call;
  {
    const std::lock_guard lock(mutex_);
    if (!pool_.program || *pool_.program != program) return nullptr;
    outdated = drop_outdated();
    const auto found = tended_.find(id);
    if (found == tended_.end()) return nullptr;
    wish();
    if (found->second.calls.empty()) return nullptr;
    call = std::move(found->second.calls.front());
    found->second.calls.erase(found->second.calls.begin());
  }
  call->take_into_use();
  return call;
}

bool WarmStock::wait_until_full(const CallControl& control) {
  std::unique_lock lock(mutex_);
  if (!thread_) wish();
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

std::string WarmStock::interpreter_mark() const {
  struct stat status{};
  if (pool_.spec.image.value_or(std::string(kHostImage)) != kHostImage ||
      stat(pool_.program->interpreter.c_str(), &status) < 0) {
    return {};  // an image does not change
  }
  return fmt::format("{}:{}:{}:{}.{}", status.st_dev, status.st_ino, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

// Under the lock.
WarmStock::Calls WarmStock::drop_outdated() {
  Calls dropped;
  std::string mark = interpreter_mark();
  if (mark == mark_) return dropped;
  mark_ = std::move(mark);
  for (auto& [id, tended] : tended_) {
    std::ranges::move(tended.calls, std::back_inserter(dropped));
    tended.calls.clear();
  }
  return dropped;
}

void WarmStock::work(const std::stop_token& stop) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!wished_.wait(lock, stop, [&] { return wish_; })) return;
      wish_ = false;
    }
    bool failed = false;
    try {
      while (!stop.stop_requested() && (make_program() || make_sandbox())) {
      }
    } catch (const std::exception& failure) {
      write_log(log_, LogLevel::warning, fmt::format("linux: warm pool: {}", failure.what()));
      failed = true;
    }
    const std::lock_guard lock(mutex_);
    failed_ = failed;
    resting_ = !wish_;
    if (resting_) rested_.notify_all();
  }
}

// Each returns whether it made one.
bool WarmStock::make_sandbox() {
  {
    const std::lock_guard lock(mutex_);
    if (ready_.size() >= pool_.sandboxes) return false;
  }
  Ready ready = makers_.sandbox();
  tend(ready.sandbox);
  const std::lock_guard lock(mutex_);
  ready_.push_back(std::move(ready));
  return true;
}

bool WarmStock::make_program() {
  if (!pool_.program) return false;
  std::shared_ptr<const HeldSandbox> sandbox;
  Calls outdated;
  std::vector<Tended> dead;
  {
    const std::lock_guard lock(mutex_);
    outdated = drop_outdated();
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

}  // namespace casemate::linux_backend
