#include "casemate/mcp/http_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace casemate::mcp {

EventStream::EventStream(std::string name, Keeping keeping, std::size_t max_notification_bytes,
                         std::shared_ptr<AnswerStore> store, std::string caller)
    : name_(std::move(name)),
      keeping_(keeping),
      max_notification_bytes_(max_notification_bytes),
      store_(std::move(store)),
      caller_(std::move(caller)) {}

void EventStream::push(Kind kind, std::string message, unsigned status) {
  add(kind, std::move(message), status, false);
}

void EventStream::push_last(Kind kind, std::string message, unsigned status) {
  add(kind, std::move(message), status, true);
}

void EventStream::add(Kind kind, std::string message, unsigned status, bool is_last) {
  if (finished()) return;
  const std::size_t bytes = message.size();
  // May give up other streams, and so is not under our lock.
  HeldMessage held = store_ ? store_->hold(std::move(message), shared_from_this(), caller_)
                            : std::make_shared<const std::string>(std::move(message));
  std::function<void()> wake;
  std::deque<Event> dropped;  // their ends are counted: not under our lock either
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = is_last;
    events_.push_back({++last_number_, kind, std::move(held), status});
    held_bytes_ += bytes;
    if (kind == Kind::notification) {
      notification_bytes_ += bytes;
      dropped = drop_notifications();
    }
    wake = wake_;
  }
  if (wake) wake();
}

std::deque<EventStream::Event> EventStream::drop_notifications() {
  std::deque<Event> dropped;
  auto oldest = events_.begin();
  while (notification_bytes_ > max_notification_bytes_) {
    oldest = std::find_if(oldest, events_.end(),
                          [](const Event& event) { return event.kind == Kind::notification; });
    notification_bytes_ -= oldest->message->size();
    held_bytes_ -= oldest->message->size();
    dropped.push_back(std::move(*oldest));
    oldest = events_.erase(oldest);
  }
  return dropped;
}

void EventStream::finish() {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    wake = wake_;
  }
  if (wake) wake();
}

void EventStream::give_up() {
  std::function<void()> wake;
  std::deque<Event> dropped;
  {
    const std::lock_guard lock(mutex_);
    finished_ = given_up_ = true;
    dropped.swap(events_);
    held_bytes_ = notification_bytes_ = 0;
    wake = wake_;
  }
  if (wake) wake();
}

bool EventStream::is_given_up() const {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

std::uint64_t EventStream::listen(std::uint64_t after, std::function<void()> wake) {
  std::function<void()> before;
  bool at_once = false;
  std::uint64_t listener = 0;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(wake_, wake);
    listener = ++listener_;
    read_ = after;
    at_once = finished_ || (!events_.empty() && events_.back().number > read_);
  }
  if (before) before();
  if (at_once) wake();
  return listener;
}

bool EventStream::listens(std::uint64_t listener) const {
  const std::lock_guard lock(mutex_);
  return wake_ && listener_ == listener;
}

void EventStream::stop_listening(std::uint64_t listener) {
  std::function<void()> last;  // ends behind the lock: it may own whoever listened
  const std::lock_guard lock(mutex_);
  if (listener_ == listener) last.swap(wake_);
}

bool EventStream::has_listener() const {
  const std::lock_guard lock(mutex_);
  return static_cast<bool>(wake_);
}

std::optional<EventStream::Event> EventStream::next() {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::upper_bound(events_, read_, {}, &Event::number);
  if (found == events_.end()) return std::nullopt;
  read_ = found->number;
  if (keeping_ == Keeping::everything) return *found;
  Event event = std::move(*found);
  held_bytes_ -= event.message->size();
  if (event.kind == Kind::notification) notification_bytes_ -= event.message->size();
  events_.erase(found);
  return event;
}

bool EventStream::at_end() const {
  const std::lock_guard lock(mutex_);
  return finished_ && (events_.empty() || events_.back().number <= read_);
}

bool EventStream::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

std::uint64_t EventStream::last_number() const {
  const std::lock_guard lock(mutex_);
  return last_number_;
}

std::uint64_t EventStream::last_read() const {
  const std::lock_guard lock(mutex_);
  return read_;
}

std::size_t EventStream::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

std::string to_text(const EventId& id) { return fmt::format("{}.{}", id.stream, id.number); }

std::optional<EventId> parse_event_id(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 64) return std::nullopt;
  const auto digits = text.substr(dot + 1);
  EventId id{std::string(text.substr(0, dot)), 0};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), id.number);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return id;
}

EventFrame event_frame(std::string_view id) {
  EventFrame frame;
  if (!id.empty()) frame.before.append("id: ").append(id).append("\n");
  frame.before += "data: ";
  return frame;
}

std::string priming_event_text(std::string_view id, unsigned retry_milliseconds) {
  return fmt::format("id: {}\nretry: {}\ndata: \n\n", id, retry_milliseconds);
}

}  // namespace casemate::mcp
