#pragma once

// An MCP server without a transport: tools of a host, served to any number of clients.
//
// A transport (stdio.h; Streamable HTTP) reads bytes, makes messages of them with `read_message`
// and hands each to the `Peer` of its client, with an `Outlet` for the answers. Both eras are
// served side by side: a request that carries its revision in `_meta` is served by itself
// (2026-07-28); an `initialize` makes the peer one of a handshake revision.

#include <boost/json/fwd.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/mcp/json_rpc.h"
#include "casemate/mcp/outlet.h"
#include "casemate/mcp/revision.h"
#include "casemate/mcp/share.h"
#include "casemate/mcp/worker_pool.h"
#include "casemate/tool/tool.h"

namespace casemate::mcp {

// Whom a tool of `ApprovalMode::always_require` is approved by where the host gives no `Approver`:
// nobody, or the client, which asks its user (elicitation; from 2025-06-18 on, where a client says
// that it can). Such a client speaks for the person at it: what it says is believed.
enum class AskClients : std::uint8_t { no, yes };

// Whether a tool can reach beyond its sandbox: by egress, by host tools, by being no sandbox's.
enum class OpenWorld : std::uint8_t { no, yes };

struct ServedTool {
  Tool tool;
  // For the client, as `openWorldHint`. `readOnlyHint` is never true.
  OpenWorld open_world = OpenWorld::yes;
  // Gives the content of a result in place of its text, as the protocol has content blocks: for
  // pictures, sounds, whole files that a model is to be shown. Empty: the text. From several
  // threads.
  std::function<boost::json::array(const ToolResult& result)> content{};
};

// A method of the host's own, for what this module has no notion of: prompts, completion, resources
// other than what landed.
struct HostMethod {
  // Gives the result. Runs as tools do, on threads of the server, from several at once; may ask the
  // client (ask_client.h). Throws `InvalidArgument` for params that do not fit, whose message the
  // client is told (-32602), and `NoSuchResource`.
  std::function<boost::json::object(const boost::json::object& params)> answer{};
  // How long clients of the stateless revision may keep the result, if the method's has that at
  // all.
  std::optional<std::chrono::milliseconds> keep_for{};
};

// From a `HostMethod`: there is no such resource. The revisions have different codes for that.
class NoSuchResource : public std::runtime_error {
 public:
  explicit NoSuchResource(const std::string& uri)
      : std::runtime_error("no such resource"), uri_(uri) {}
  const std::string& uri() const { return uri_; }

 private:
  std::string uri_;
};

// Somebody wants to call a tool that asks for approval. Valid during the call.
struct ApprovalRequest {
  std::string_view tool;
  // A JSON value as text, as the client sent it; not checked yet.
  std::string_view arguments;
  // `Caller::identity`.
  std::string_view caller;
};

// Asked once an invocation, on the thread that would run it; from several at once. True lets it
// pass. A stop is a cancelled call: answer false soon. What it throws is a no.
using Approver = std::function<bool(const ApprovalRequest& request, const std::stop_token& stop)>;

// Whether results carry `mimeType` (media_type.h).
enum class MediaTypes : std::uint8_t { none, by_extension };

// Whether a stateless request may go on in the sandbox of an earlier one (surface, section 4).
enum class Handles : std::uint8_t { no, yes };

struct ConversationOptions {
  Handles handles = Handles::no;
  // A conversation by handle that nobody used for so long ends, with its sandbox.
  std::chrono::milliseconds idle{600'000};
  // By handle, at a time; one more is refused.
  std::size_t max_handles = 64;
  // Told once a conversation, when its last call is over and nobody can name it any more: ends its
  // sandboxes. May block; must not throw. Called from the server's threads.
  std::function<void(std::string_view thread_id)> end{};
};

// Every field has an initialiser, so that a host that names only some is not warned of the rest.
struct ServerOptions {
  std::string name = "casemate";
  std::string version = "0";
  // For models; may be empty.
  std::string instructions{};
  // In the order in which they are listed. Names are unique, at most 128 of [A-Za-z0-9_.-].
  std::vector<ServedTool> tools{};
  // Asked for tools of `ApprovalMode::always_require`. Without one, `ask_clients` says who is.
  // Where nobody is, and to clients that cannot be asked, such a tool is not listed and cannot be
  // called; the log says why.
  Approver approve{};
  AskClients ask_clients = AskClients::yes;
  // How long a client may take for an answer to a question of ours, with which the call's thread
  // waits (in the stateless revision nothing waits).
  std::chrono::milliseconds ask_patience{300'000};
  // By their names; not those that the module serves itself.
  std::map<std::string, HostMethod, std::less<>> methods{};
  // What the server can besides, as a JSON object of capabilities: `{"prompts":{}}`.
  std::string more_capabilities = "{}";
  // The bytes of what landed, for `resources/read`. Throws when there are more than `max_bytes`, or
  // none. Empty: there are no resources. From several threads.
  std::function<std::string(const LandedArtifact& artifact, std::uint64_t max_bytes)>
      read_artifact{};
  std::uint64_t max_artifact_bytes = 32 * 1024 * 1024;
  MediaTypes media_types = MediaTypes::by_extension;
  ConversationOptions conversations{};
  MessageBounds messages{};
  // Calls of all clients together.
  PoolLimits calls{};
  Log log{};
};

// Who is at the other end, as a transport established it. Opaque here: the same value is the same
// caller, and what landed for one is never given to another.
struct Caller {
  // The digest of a token, "stdio"; never the token itself. Empty: nobody in particular.
  std::string identity{};
  // True when nobody else can have the same `identity`: such a caller is listed all that it landed.
  // False (HTTP without a token): only what its own session landed, and what it has addresses of
  // can be read.
  bool is_one_client = false;
  // Of calls, and of conversations by handle.
  Share share = Share::whole;
};

// Headers of a POST that a stateless request is held against: names in lower case, values as they
// came. Only those that begin with "mcp-" matter here.
using Headers = std::map<std::string, std::string, std::less<>>;

// Whether a message is one of the stateless revision: one says its revision in `_meta`, asks
// `server/discover`, or came with the header `mcp-protocol-version: 2026-07-28`.
bool is_stateless(const Received& received, const Headers* headers = nullptr);

struct ServerState;
struct RunningCall;

// The requests of one `Peer::receive` that were not answered before it returned; none if it is
// default-constructed.
class Unanswered {
 public:
  bool empty() const { return calls_.empty(); }

 private:
  friend class Peer;
  std::vector<std::pair<RequestId, std::weak_ptr<RunningCall>>> calls_;
};

// One client: a stdio process, an HTTP session, or the sender of one stateless POST. Methods may be
// called from any thread; messages that are handed in one after the other are taken in that order.
class Peer {
 public:
  Peer(std::shared_ptr<ServerState> server, Caller caller);
  // `close`.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Takes a message, or a batch. What is quick (all but `tools/call` and `resources/read`) is
  // answered before this returns; a tool never runs on this thread. `headers`, of HTTP, are
  // borrowed for the call.
  Unanswered receive(const Received& received, const std::shared_ptr<Outlet>& outlet,
                     const Headers* headers = nullptr);

  // Cancels those that are still not answered, as the client could; another request that came
  // later with the same id is none of them.
  void cancel(const Unanswered& requests) noexcept;

  // The handshake revision, once `initialize` was answered.
  std::optional<Revision> revision() const;

  // Requests that are not answered yet.
  std::size_t in_flight() const;

  // The client has gone: what runs is stopped and gets no answer, and once it is over the session's
  // conversation ends. What comes later gets no answer either. Idempotent; does not wait.
  void close() noexcept;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// A copy is another handle to the same server. May be used from several threads.
class Server {
 public:
  // Throws `InvalidArgument` for a name that is no tool's or is there twice, and, with handles, for
  // a tool that has a parameter `conversation` of its own.
  explicit Server(ServerOptions options);

  std::shared_ptr<Peer> connect(Caller caller) const;

  const MessageBounds& message_bounds() const;

  // Names of the tools that are served, in order: those that nobody could approve are left out.
  std::vector<std::string> tool_names() const;

  // Calls that run or wait, of all peers.
  std::size_t in_flight() const;

  // Ends it: stops what runs, drops what waits, ends every conversation, waits at most `patience`.
  // Returns how many calls did not come back; their threads are left behind. Close peers first.
  std::size_t stop(std::chrono::nanoseconds patience) const noexcept;

 private:
  std::shared_ptr<ServerState> state_;
};

}  // namespace casemate::mcp
