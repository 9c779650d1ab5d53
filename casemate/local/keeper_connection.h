#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "casemate/core/control.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {

// The host's end of one keeper. Requests go when they are made, answers come in any order: of those
// who wait for one, one reads for all. Thread-safe.
class KeeperConnection {
 public:
  // `silence`: for so long the host believes in a keeper that says nothing to anybody.
  KeeperConnection(sys::UniqueFd socket, std::chrono::nanoseconds silence)
      : socket_(std::move(socket)), silence_(silence) {}
  KeeperConnection(const KeeperConnection&) = delete;
  KeeperConnection& operator=(const KeeperConnection&) = delete;

  // Answers to that number are kept for it from now on; those to others, which were given up on,
  // are passed over.
  class Waiting {
   public:
    Waiting(KeeperConnection& keeper, std::uint64_t number);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    // The next. Throws `SandboxTimeout` (also of a keeper that is silent), `SandboxCancelled`, and
    // `std::system_error` when the keeper is gone or does not keep to the messages; what it said
    // why it could not begin is `last_words`.
    guest::KeeperAnswer receive(const CallControl& control);

   private:
    KeeperConnection& keeper_;
    std::uint64_t number_;
  };

  // One packet. Throws `std::system_error`; where the keeper does not read what others have sent,
  // also as `receive`.
  void send(std::span<const char> message, std::span<const int> descriptors,
            const CallControl& control);
  // Somebody's patience ended, and it has said nothing since.
  bool is_silent();
  // Why it could not begin, where it said that before it ended.
  std::optional<guest::KeeperAnswer> last_words();

 private:
  void take_messages();
  // When nobody believes in it any more, as it is known under the lock.
  sys::SteadyTime end_of_patience(sys::SteadyTime since) const;

  const sys::UniqueFd socket_;
  const std::chrono::nanoseconds silence_;
  std::mutex mutex_;
  std::condition_variable_any heard_;
  std::map<std::uint64_t, std::deque<guest::KeeperAnswer>> answers_;
  std::optional<guest::KeeperAnswer> last_words_;
  bool somebody_reads_ = false;
  sys::SteadyTime heard_at_{};
  bool silent_ = false;
  bool was_reset_ = false;
  // Of its end; 0: it is there.
  int error_ = 0;
};

}  // namespace casemate::local
