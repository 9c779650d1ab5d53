#pragma once

// Conversations that stateless requests name by a handle.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "casemate/mcp/conversation.h"
#include "casemate/mcp/share.h"

namespace casemate::mcp {

// May be used from several threads. Handles are kept as digests only, and never logged.
class HandleRegistry {
 public:
  HandleRegistry(std::size_t max_handles, std::chrono::milliseconds idle);
  // `clear`.
  ~HandleRegistry();
  HandleRegistry(const HandleRegistry&) = delete;
  HandleRegistry& operator=(const HandleRegistry&) = delete;

  // A use of a conversation: while one lives, it does not expire. Goes before the registry.
  using Use = std::shared_ptr<const Conversation>;

  // Gives the conversation a handle of 128 random bits, for callers of `identity`. Absent when
  // there are too many, or as many of that caller as `share` lets him have.
  std::optional<std::string> add(const std::shared_ptr<Conversation>& conversation,
                                 std::string_view identity, Share share = Share::whole);

  // Null for a handle that is unknown, another's, or expired; one that was is never made
  // anew.
  Use use(std::string_view handle, std::string_view identity);

  void forget(std::string_view handle);

  // Forgets all, and takes no more.
  void clear() noexcept;

 private:
  struct Held {
    std::shared_ptr<Conversation> conversation;
    std::string identity;
    std::chrono::steady_clock::time_point last_use;
  };

  void expire(const std::stop_token& stop);

  const std::size_t max_handles_;
  const std::chrono::milliseconds idle_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool cleared_ = false;
  std::map<std::string, Held, std::less<>> held_;
  // Started with the first handle.
  std::jthread expiry_;
};

}  // namespace casemate::mcp
