#pragma once

// The sessions of the handshake revisions: who has one, which streams it has, when it ends. Pure
// bookkeeping on one thread; no sockets.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "casemate/mcp/http_events.h"
#include "casemate/mcp/server.h"
#include "casemate/mcp/share.h"

namespace casemate::mcp {

using HttpTime = std::chrono::steady_clock::time_point;

struct SessionLimits {
  std::size_t max_sessions = 64;
  // Of one caller.
  Share share = Share::whole;
  std::size_t max_streams = 16;
  std::chrono::milliseconds idle{600'000};
  std::chrono::milliseconds resume_within{10'000};
};

// One conversation of a client. Its streams are those a client may come back to.
class HttpSession {
 public:
  HttpSession(std::string caller, std::shared_ptr<Peer> peer, HttpTime now);

  const std::string& caller() const noexcept { return caller_; }
  Peer& peer() const noexcept { return *peer_; }

  // Somebody asked for something.
  void touch(HttpTime now) noexcept { last_used_ = now; }

  // Keeps `stream` for a client that comes back. `requests` are those that it answers: they are
  // cancelled when nobody does. Streams that have ended and are not read make room, the oldest
  // first.
  void keep(const std::shared_ptr<EventStream>& stream, Unanswered requests,
            const SessionLimits& limits);
  // Something slow that nobody can come back for is being answered; counts as a stream.
  void begin_once() noexcept { ++once_; }
  void end_once() noexcept { --once_; }
  std::shared_ptr<EventStream> find_stream(std::string_view name) const;
  // Of kept ones, those that somebody reads or that have not ended; and what is answered once.
  std::size_t open_streams() const;

  // The connection that read `stream` is gone. A client that was told no event's id cannot come
  // back: the requests are cancelled now.
  enum class Return : std::uint8_t { possible, impossible };
  void left(const EventStream& stream, Return come_back, HttpTime now);

  // Cancels what nobody came back for, forgets streams that nobody will ask for.
  void sweep(HttpTime now, const SessionLimits& limits);
  bool idle(HttpTime now, const SessionLimits& limits) const;

  // Stops what runs and ends every stream.
  void end() noexcept;

 private:
  struct Kept {
    std::shared_ptr<EventStream> stream;
    Unanswered requests;
    // Since when nobody reads it.
    std::optional<HttpTime> left{};
  };
  const std::string caller_;
  const std::shared_ptr<Peer> peer_;
  HttpTime last_used_;
  std::vector<Kept> kept_;  // in the order of their beginning
  std::size_t once_ = 0;
};

// Ids are looked for by their digest: how long that takes says nothing about an id.
class HttpSessions {
 public:
  explicit HttpSessions(SessionLimits limits);

  const SessionLimits& limits() const noexcept { return limits_; }
  std::size_t size() const noexcept { return sessions_.size(); }
  // Whether that caller can have no other now.
  bool full(std::string_view caller) const noexcept;

  // Returns its id: 256 random bits in hex.
  std::string open(std::shared_ptr<HttpSession> session);
  // Null for an id that is unknown, or another caller's.
  std::shared_ptr<HttpSession> find(std::string_view id, std::string_view caller) const;
  // False when there is none of that id and caller.
  bool end(std::string_view id, std::string_view caller);
  void sweep(HttpTime now);
  void end_all() noexcept;

 private:
  const SessionLimits limits_;
  std::unordered_map<std::string, std::shared_ptr<HttpSession>> sessions_;
};

}  // namespace casemate::mcp
