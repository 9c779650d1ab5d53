#pragma once

// HTTP/1.1 for one endpoint: sockets, TLS, limits and patience, heads and bodies, answers and event
// streams. What the messages mean is the application's.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/mcp/http_events.h"
#include "casemate/mcp/http_head.h"
#include "casemate/mcp/http_tokens.h"

namespace casemate::mcp {

struct HttpAnswer {
  unsigned status = 200;
  // JSON; may be empty.
  std::string body{};
  // Besides those that every answer has.
  std::vector<std::pair<std::string, std::string>> fields{};

  // When it is set, what is above but `fields` does not count: the answer is this stream. If its
  // first message is a reply and its last one, it is sent as JSON with the status that stands in
  // its head; otherwise, and when nothing came within the server's keep-alive time, as
  // text/event-stream.
  std::shared_ptr<EventStream> stream{};
  // Sends the stream as text/event-stream from the start, whatever comes.
  bool events_at_once = false;
  // Its events carry ids, by which a client may come back; the first one, sent at once, tells the
  // id to come back with if nothing else was received.
  bool resumable = false;
  bool primed = false;
  // Reading goes on behind this event.
  std::uint64_t after = 0;
  // Called once, on the server's thread, when nothing more of the stream will be sent by this
  // answer: true when all was, false when the client went or read too slowly.
  std::function<void(bool whole)> ended{};
};

// All calls come from the server's one thread and must not block: every connection waits meanwhile.
class HttpApplication {
 public:
  virtual ~HttpApplication() = default;
  // `head` has passed `check_names` and `check_form`; `caller` is whose token it carried, empty
  // when no tokens are asked for.
  virtual HttpAnswer answer(const HttpHead& head, std::string_view caller, std::string body) = 0;
  // The body of a refusal that the server makes by itself.
  virtual std::string refusal_body(const HttpRefusal& refusal) = 0;
  // About once a second.
  virtual void tick(std::chrono::steady_clock::time_point now) = 0;
};

struct HttpServerOptions {
  // An address or a name that leads to addresses of this machine; every one of them is listened on.
  std::string host = "127.0.0.1";
  // 0: one that the kernel chooses.
  std::uint16_t port = 0;
  std::string path = "/mcp";
  // Names besides HOST by which clients reach us (a proxy's, say).
  std::vector<std::string> also_named{};
  // Null: nobody is asked for a token. Refused for an address that is not loopback.
  std::shared_ptr<TokenFile> tokens{};
  // Files in PEM, both or neither. TLS 1.2 and 1.3. Read once.
  std::string tls_certificate{};
  std::string tls_key{};
  Log log{};

  // At each of these bounds passes. One connection more ends the one that has been owing a request
  // for longest; where none does, it is refused. Where there are tokens, the requests of one caller
  // that are served take three quarters of these places at most.
  std::size_t max_connections = 256;
  std::size_t max_head_bytes = 16 * 1024;
  std::size_t max_body_bytes = 16 * 1024 * 1024;
  // Of bodies that are being received, in all connections, as far as they have come. More than that
  // ends the one that has been coming for longest; one caller of several has three quarters, and
  // over that one of his own ends.
  std::size_t max_receiving_bytes = 64 * 1024 * 1024;
  // For a TLS handshake, and for a head from its first byte to its last.
  std::chrono::milliseconds head_patience{10'000};
  std::chrono::milliseconds body_patience{60'000};
  // Between requests.
  std::chrono::milliseconds idle_patience{60'000};
  // For a client to take what was sent, a piece of at most 64 KiB or one message.
  std::chrono::milliseconds write_patience{30'000};
  // A stream that is silent for so long gets a comment.
  std::chrono::milliseconds keep_alive{15'000};
};

// Listens from construction on, on a thread of its own, until it is stopped or destroyed.
class HttpServer {
 public:
  struct Core;  // of the implementation

  // `application` outlives the server. Throws `InvalidArgument` for options that cannot be served
  // (tokens missing, a certificate that cannot be read), `std::system_error` when it cannot listen.
  HttpServer(HttpServerOptions options, HttpApplication& application);
  // Throws what construction throws of the options alone: names that lead nowhere, tokens missing,
  // certificates. Does not listen.
  static void check(const HttpServerOptions& options);
  ~HttpServer();

  std::uint16_t port() const noexcept;
  // "http://127.0.0.1:8080/mcp", with the host as it was given.
  std::string url() const;

  // Open now; for tests and logs.
  std::size_t connections() const noexcept;

  // Calls `work` on the server's thread, soon. May be called from any thread; after `stop` nothing
  // happens.
  void run_soon(std::function<void()> work);

  // Takes no further connection, lets answers that have ended reach their clients for at most
  // `patience`, then closes everything. Returns when the thread has ended. The application is to
  // end its streams before.
  void stop(std::chrono::milliseconds patience) noexcept;

 private:
  std::unique_ptr<Core> core_;
};

}  // namespace casemate::mcp
