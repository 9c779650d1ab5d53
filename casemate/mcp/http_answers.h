#pragma once

// What answers that were not read yet take of memory, of all streams together.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace casemate::mcp {

class EventStream;

// A message that is counted for as long as anybody holds it: a stream, a connection that sends it.
using HeldMessage = std::shared_ptr<const std::string>;

// Counts the bytes of messages. Where they come to more than the bound, streams are given up until
// they do not: of the caller who holds most, the one that has held unread messages for longest. So
// a client who reads keeps his answers, and one who does not loses his own. A message that is
// larger than the bound alone is held alone.
//
// May be used from several threads. Between a message that is too much and the end of what gave way
// to it lies the time in which a connection notices: the bound may be passed by what is made
// meanwhile, a message for each thread that makes them.
class AnswerStore : public std::enable_shared_from_this<AnswerStore> {
 public:
  explicit AnswerStore(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // `stream` holds `message` for `caller`. Gives up other streams if need be: not to be called with
  // a stream's lock held.
  HeldMessage hold(std::string message, const std::shared_ptr<EventStream>& stream,
                   std::string_view caller);

  std::size_t held_bytes() const;

 private:
  struct Holder {
    std::string caller;
    std::weak_ptr<EventStream> stream;
    std::size_t bytes = 0;
    // The order in which holders began to hold what they hold.
    std::uint64_t since = 0;
    bool given_up = false;
  };
  // The weak pointer of a holder keeps its key from being another stream's.
  using Holders = std::map<const EventStream*, Holder>;

  void release(const EventStream* stream, std::size_t bytes) noexcept;
  std::vector<std::shared_ptr<EventStream>> choose_victims(const EventStream* spared);
  Holders::iterator find_victim(const EventStream* spared);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  Holders holders_;
  std::uint64_t last_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace casemate::mcp
