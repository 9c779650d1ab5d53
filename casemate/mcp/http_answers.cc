#include "casemate/mcp/http_answers.h"

#include <utility>
#include <vector>

#include "casemate/mcp/http_events.h"

namespace casemate::mcp {

HeldMessage AnswerStore::hold(std::string message, const std::shared_ptr<EventStream>& stream,
                              std::string_view caller) {
  const std::size_t bytes = message.size();
  auto owned = std::make_unique<const std::string>(std::move(message));
  std::vector<std::shared_ptr<EventStream>> victims;
  {
    const std::lock_guard lock(mutex_);
    Holder& holder = holders_[stream.get()];
    if (holder.bytes == 0) {
      holder = {.caller = std::string(caller), .stream = stream, .since = ++last_};
    }
    holder.bytes += bytes;
    bytes_ += bytes;
    if (bytes_ > max_bytes_) victims = choose_victims(stream.get());
  }
  HeldMessage held(owned.get(),
                   [self = shared_from_this(), key = stream.get(), bytes](const std::string* text) {
                     self->release(key, bytes);
                     delete text;
                   });
  static_cast<void>(owned.release());
  for (const auto& victim : victims) victim->give_up();
  return held;
}

std::vector<std::shared_ptr<EventStream>> AnswerStore::choose_victims(const EventStream* spared) {
  std::vector<std::shared_ptr<EventStream>> victims;
  // What was given up before is still held until its connection has noticed.
  std::size_t counting = 0;
  for (const auto& entry : holders_) counting += entry.second.given_up ? 0 : entry.second.bytes;
  while (counting > max_bytes_) {
    const auto victim = find_victim(spared);
    if (victim == holders_.end()) break;
    victim->second.given_up = true;
    counting -= victim->second.bytes;
    if (auto still = victim->second.stream.lock()) victims.push_back(std::move(still));
  }
  return victims;
}

// The next to be given up: of the caller who holds most, not counting `spared`.
AnswerStore::Holders::iterator AnswerStore::find_victim(const EventStream* spared) {
  std::map<std::string_view, std::size_t> of_caller;
  const auto may_go = [spared](const auto& entry) {
    return entry.first != spared && !entry.second.given_up && entry.second.bytes > 0;
  };
  for (const auto& entry : holders_) {
    if (may_go(entry)) of_caller[entry.second.caller] += entry.second.bytes;
  }
  auto victim = holders_.end();
  std::size_t most = 0;
  for (auto at = holders_.begin(); at != holders_.end(); ++at) {
    if (!may_go(*at)) continue;
    const std::size_t held = of_caller[at->second.caller];
    if (held < most) continue;
    if (held > most || at->second.since < victim->second.since) victim = at;
    most = held;
  }
  return victim;
}

void AnswerStore::release(const EventStream* stream, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  bytes_ -= bytes;
  const auto found = holders_.find(stream);
  found->second.bytes -= bytes;
  if (found->second.bytes == 0) holders_.erase(found);
}

std::size_t AnswerStore::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace casemate::mcp
