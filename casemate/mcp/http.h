#pragma once

// Streamable HTTP: an MCP server at one endpoint, for both eras at once.
//
// 2026-07-28: each POST is served by itself; closing its response cancels the request.
// Handshake revisions (2025-03-26 to 2025-11-25; 2024-11-05 had no such transport, and is served
// all the same to who asks for it): an `initialize` opens a session, named by Mcp-Session-Id. Its
// calls are answered by event streams that a client may resume, by GET with Last-Event-ID; GET
// alone opens a stream on which nothing is sent but comments; DELETE ends the session.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "casemate/mcp/http_server.h"
#include "casemate/mcp/server.h"

namespace casemate::mcp {

struct HttpOptions {
  // `max_body_bytes` is set to the server's bound on a message.
  HttpServerOptions http{};
  // At each of these bounds passes. Where there are tokens, one caller has three quarters of the
  // sessions at most.
  std::size_t max_sessions = 64;
  // Of one session, at a time; also how many finished ones are kept for a client that missed the
  // end.
  std::size_t max_streams = 16;
  // A session that has no connection and no running call for so long ends, with its sandboxes.
  std::chrono::milliseconds session_idle{600'000};
  // How long a client may stay away from a stream that it can resume, before the call that answers
  // on it is stopped. The handshake revisions do not take a lost connection for a cancellation;
  // without any bound a client that was killed would leave its program running.
  std::chrono::milliseconds resume_within{10'000};
  // Of notifications that one stream holds; the oldest go first.
  std::size_t max_notification_bytes = 256 * 1024;
  // Of messages that wait for their clients, in all streams (http_answers.h): over it those are
  // given up that have waited for longest, of the caller who has most. A client that had not read
  // his answer sees the connection end; one that was to come back finds nothing.
  std::size_t max_answer_bytes = 64 * 1024 * 1024;
};

// Serves from construction on, on one thread of its own and those of `server`. A session's id has
// 256 random bits, is never logged, and is known to the caller that opened it alone: to another
// token it does not exist.
class HttpFront {
 public:
  // Throws as `HttpServer` does.
  HttpFront(const Server& server, HttpOptions options);
  // `stop(0)`.
  ~HttpFront();

  std::uint16_t port() const noexcept;
  std::string url() const;
  // Open now.
  std::size_t connections() const noexcept;
  std::size_t sessions() const noexcept;

  // Takes nothing more, ends every session (what runs is stopped), lets answers that were made
  // reach their clients for at most `patience`. Idempotent. Does not stop `server`.
  void stop(std::chrono::milliseconds patience) noexcept;

 private:
  class Application;
  std::unique_ptr<Application> application_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace casemate::mcp
