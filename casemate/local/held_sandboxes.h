#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/guest/ready_call.h"
#include "casemate/local/keeper_client.h"
#include "casemate/local/state_directory.h"
#include "casemate/sys/epoll.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {

// What a lease was told last, so that only a change costs a message. Moved only before it is
// shared.
class KeepIdle {
 public:
  KeepIdle() = default;
  explicit KeepIdle(std::chrono::milliseconds value) : value_(value.count()) {}
  KeepIdle(KeepIdle&& other) noexcept : value_(other.value_.load()) {}
  KeepIdle& operator=(KeepIdle&&) = delete;
  // Whether it was another.
  bool change(std::chrono::milliseconds value) const {
    return value_.exchange(value.count()) != value.count();
  }

 private:
  // -1: none was told.
  mutable std::atomic<std::chrono::milliseconds::rep> value_ = -1;
};

// A sandbox with the lease that keeps it alive.
struct HeldSandbox {
  Record record;
  // Its state directory, wherever it is moved to.
  sys::UniqueFd directory;
  sys::UniqueFd lease;
  KeepIdle keep_idle{};
  std::shared_ptr<guest::ReadyCall> ready = std::make_shared<guest::ReadyCall>();
  // When a keeper of this process made it.
  std::optional<KeptBy> kept_by{};
};

// The leases of this process, one for each live identity that it acquired: kept until the sandbox
// is disposed or found dead, or this table goes. A handle shares its entry, so a sandbox whose
// handle outlives the table lives as long as the handle.
//
// Thread-safe; methods throw `std::system_error` where no descriptor can be had. In a forked child
// of the application the table and its leases are there too; both processes hold them then.
class HeldSandboxes {
 public:
  // The sandbox held under that identity, alive a moment ago; null when there is none. Costs one
  // system call. A dead one is forgotten.
  std::shared_ptr<const HeldSandbox> find(const std::string& digest);

  // Replaces what is there.
  void put(const std::string& digest, std::shared_ptr<const HeldSandbox> sandbox);

  // Takes the entry out if it is the sandbox of that id, else null. As long as the caller keeps it,
  // the lease does not end the sandbox.
  std::shared_ptr<const HeldSandbox> take(const std::string& digest, const std::string& id);

  // What the sandbox of that id is held under; empty when it is not held here.
  std::string name_of(std::string_view id);

  // Forgets every dead one: disposed by another process, or killed. Costs one system call, however
  // many live.
  void drop_dead();

 private:
  struct Entry {
    std::shared_ptr<const HeldSandbox> sandbox;
    // What `ends_` calls its lease.
    std::uint64_t number = 0;
  };
  using Entries = std::map<std::string, Entry>;

  void begin_watching();
  void watch(const std::string& digest, Entry& entry);
  std::shared_ptr<const HeldSandbox> take_out(Entries::iterator found);

  std::mutex mutex_;
  Entries by_digest_;
  std::map<std::uint64_t, std::string> digest_by_number_;
  std::uint64_t last_number_ = 0;
  // Of this process: a forked child makes its own, because what is taken out of one is taken out
  // for both.
  std::optional<sys::Epoll> ends_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate::local
