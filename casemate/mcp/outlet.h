#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

namespace casemate::mcp {

// One message on its way to a client.
struct Outgoing {
  enum class Kind : std::uint8_t {
    // An answer, or a batch of answers.
    reply,
    // A request of ours to the client: never dropped, like an answer.
    request,
    notification,
  };

  // Valid UTF-8 on one line, without a newline behind it.
  std::string text;
  Kind kind = Kind::reply;
  // For HTTP, of a reply: the status if the response has not begun (200; 400, 404 or 429 for errors
  // that the protocol gives one).
  int http_status = 200;
};

// Where the messages that belong to one `Peer::receive` go: standard output, the response of one
// POST. Implemented by a transport; called from any thread, also from several at once and from
// within `Peer::receive`.
//
// Memory is the transport's to bound, by bytes. Notifications over the bound are dropped; of
// replies a transport either has no more begun than it has room for, or gives up clients that do
// not read.
class Outlet {
 public:
  virtual ~Outlet() = default;

  // Takes the message. Must neither block nor throw; after the client has gone it does nothing.
  virtual void send(Outgoing message) noexcept = 0;

  // Nothing more will be sent for that `receive`. Called exactly once each, after the last `send`,
  // also when there was nothing to say (notifications, cancelled requests).
  virtual void finished() noexcept = 0;

  // Whether an answer that takes a while may be begun: false while too much that was sent before
  // waits for the client. A transport that gives up such clients always has room.
  virtual bool has_room() { return true; }

  // Waits for room, on a thread that runs calls; false when `stop` was requested before there was.
  virtual bool wait_for_room(const std::stop_token& /*stop*/) { return true; }
};

}  // namespace casemate::mcp
