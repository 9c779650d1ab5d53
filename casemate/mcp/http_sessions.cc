#include "casemate/mcp/http_sessions.h"

#include <algorithm>
#include <utility>

#include "casemate/base/digest.h"

namespace casemate::mcp {
namespace {

constexpr std::size_t kIdBytes = 32;

}  // namespace

HttpSession::HttpSession(std::string caller, std::shared_ptr<Peer> peer, HttpTime now)
    : caller_(std::move(caller)), peer_(std::move(peer)), last_used_(now) {}

void HttpSession::keep(const std::shared_ptr<EventStream>& stream, Unanswered requests,
                       const SessionLimits& limits) {
  const auto over = [](const Kept& kept) {
    return kept.stream->finished() && !kept.stream->has_listener();
  };
  while (kept_.size() >= limits.max_streams) {
    const auto oldest = std::ranges::find_if(kept_, over);
    if (oldest == kept_.end()) break;
    kept_.erase(oldest);
  }
  kept_.push_back({stream, std::move(requests)});
}

std::shared_ptr<EventStream> HttpSession::find_stream(std::string_view name) const {
  const auto found = std::ranges::find_if(kept_, [name](const Kept& kept) {
    return kept.stream->name() == name && !kept.stream->is_given_up();
  });
  return found == kept_.end() ? nullptr : found->stream;
}

std::size_t HttpSession::open_streams() const {
  return static_cast<std::size_t>(std::ranges::count_if(kept_,
                                                        [](const Kept& kept) {
                                                          return !kept.stream->finished() ||
                                                                 kept.stream->has_listener();
                                                        })) +
         once_;
}

void HttpSession::left(const EventStream& stream, Return come_back, HttpTime now) {
  touch(now);
  const auto found = std::ranges::find_if(
      kept_, [&stream](const Kept& kept) { return kept.stream.get() == &stream; });
  // Somebody else reads on.
  if (found == kept_.end() || stream.has_listener()) return;
  found->left = now;
  if (come_back == Return::possible) return;
  peer_->cancel(found->requests);
  kept_.erase(found);
}

void HttpSession::sweep(HttpTime now, const SessionLimits& limits) {
  std::erase_if(kept_, [&](Kept& kept) {
    if (kept.stream->is_given_up()) {
      peer_->cancel(kept.requests);
      return true;
    }
    if (kept.stream->has_listener()) {
      kept.left.reset();
      return false;
    }
    if (!kept.left) kept.left = now;
    if (now - *kept.left < limits.resume_within) return false;
    peer_->cancel(kept.requests);
    return true;
  });
}

bool HttpSession::idle(HttpTime now, const SessionLimits& limits) const {
  return kept_.empty() && peer_->in_flight() == 0 && now - last_used_ >= limits.idle;
}

void HttpSession::end() noexcept {
  peer_->close();
  for (const Kept& kept : kept_) kept.stream->finish();
  kept_.clear();
}

HttpSessions::HttpSessions(SessionLimits limits) : limits_(limits) {}

bool HttpSessions::full(std::string_view caller) const noexcept {
  const auto of_caller = static_cast<std::size_t>(std::ranges::count_if(
      sessions_, [caller](const auto& entry) { return entry.second->caller() == caller; }));
  return sessions_.size() >= limits_.max_sessions ||
         of_caller >= part_of(limits_.max_sessions, limits_.share);
}

std::string HttpSessions::open(std::shared_ptr<HttpSession> session) {
  std::string id = random_hex(kIdBytes);
  sessions_.emplace(sha256_hex(id), std::move(session));
  return id;
}

std::shared_ptr<HttpSession> HttpSessions::find(std::string_view id,
                                                std::string_view caller) const {
  const auto found = sessions_.find(sha256_hex(id));
  if (found == sessions_.end() || found->second->caller() != caller) return nullptr;
  return found->second;
}

bool HttpSessions::end(std::string_view id, std::string_view caller) {
  const auto session = find(id, caller);
  if (!session) return false;
  session->end();
  sessions_.erase(sha256_hex(id));
  return true;
}

void HttpSessions::sweep(HttpTime now) {
  std::erase_if(sessions_, [&](const auto& entry) {
    HttpSession& session = *entry.second;
    session.sweep(now, limits_);
    if (!session.idle(now, limits_)) return false;
    session.end();
    return true;
  });
}

void HttpSessions::end_all() noexcept {
  for (const auto& entry : sessions_) entry.second->end();
  sessions_.clear();
}

}  // namespace casemate::mcp
