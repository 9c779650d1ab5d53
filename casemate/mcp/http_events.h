#pragma once

// The messages of one response stream, in order, and what is kept of them for a client that comes
// back for what it missed.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/mcp/http_answers.h"

namespace casemate::mcp {

// Written once and read by one reader at a time, who may be replaced. May be used from several
// threads at once; nothing here blocks.
//
// What is held is bounded by bytes: notifications past `max_notification_bytes` are dropped, the
// oldest first, whether they were read or not. No single reply or request is dropped; where those
// of all streams are too much for `store`, streams are given up whole, with everything in them.
class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  enum class Kind : std::uint8_t { notification, request, reply };
  // Whether what was read is kept for another reader.
  enum class Keeping : std::uint8_t { unread_only, everything };

  struct Event {
    // From 1, rising by one a message: what is missing was dropped.
    std::uint64_t number = 0;
    Kind kind = Kind::notification;
    HeldMessage message{};
    // Of the HTTP answer, where it consists of this message alone.
    unsigned status = 200;
  };

  // `name` tells the stream from others in an event id; visible ASCII without a dot. Messages are
  // counted in `store` for `caller`; without one, nowhere.
  EventStream(std::string name, Keeping keeping, std::size_t max_notification_bytes,
              std::shared_ptr<AnswerStore> store = nullptr, std::string caller = {});

  const std::string& name() const noexcept { return name_; }

  // Adds a message: one line of JSON. After `finish` it is dropped.
  void push(Kind kind, std::string message, unsigned status = 200);
  // The same and `finish` in one: no reader sees this message without the end.
  void push_last(Kind kind, std::string message, unsigned status = 200);
  // Nothing will follow.
  void finish();
  // What it holds is dropped, and nothing will follow: whoever reads it has to be told that the
  // rest is lost.
  void give_up();
  bool is_given_up() const;

  // Has `wake` called, from any thread and without a lock of ours held, whenever there is something
  // to read or the end was reached; at once if there is already. Reading goes on behind the event
  // `after`, 0 for the first. Returns who listens, for the calls below. Whoever listened before is
  // woken once more, to see that he does no longer.
  std::uint64_t listen(std::uint64_t after, std::function<void()> wake);
  bool listens(std::uint64_t listener) const;
  void stop_listening(std::uint64_t listener);
  bool has_listener() const;

  // The next unread event; empty when there is none now.
  std::optional<Event> next();
  // All was read and nothing will follow.
  bool at_end() const;
  bool finished() const;
  // The numbers of the last event that was pushed and the last that was read, 0 before the first.
  std::uint64_t last_number() const;
  std::uint64_t last_read() const;

  // Of messages, now.
  std::size_t held_bytes() const;

 private:
  void add(Kind kind, std::string message, unsigned status, bool is_last);
  std::deque<Event> drop_notifications();

  const std::string name_;
  const Keeping keeping_;
  const std::size_t max_notification_bytes_;
  const std::shared_ptr<AnswerStore> store_;
  const std::string caller_;
  mutable std::mutex mutex_;
  std::deque<Event> events_;
  std::uint64_t last_number_ = 0;
  // The last event that was read.
  std::uint64_t read_ = 0;
  std::size_t notification_bytes_ = 0;
  std::size_t held_bytes_ = 0;
  bool finished_ = false;
  bool given_up_ = false;
  std::function<void()> wake_;
  // Who listens, or listened last.
  std::uint64_t listener_ = 0;
};

// The id of an event, and back. An id that is none of ours gives nothing.
struct EventId {
  std::string stream{};
  std::uint64_t number = 0;
};
std::string to_text(const EventId& id);
std::optional<EventId> parse_event_id(std::string_view text);

// What stands around a message, one line, as an event of a text/event-stream body; with `id` where
// it is not empty.
struct EventFrame {
  std::string before{};
  std::string_view behind = "\n\n";
};
EventFrame event_frame(std::string_view id);
// The event that begins a stream which can be resumed: an id and nothing else, and how long a
// client should wait before it comes back.
std::string priming_event_text(std::string_view id, unsigned retry_milliseconds);
// A comment, which keeps proxies and clients from taking a silent stream for a dead one.
inline constexpr std::string_view kKeepAliveComment = ": alive\n\n";

}  // namespace casemate::mcp
