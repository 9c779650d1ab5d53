#pragma once

// What a server shares with its peers, and a peer with its calls. For mcp/ alone.

#include <atomic>
#include <boost/json/object.hpp>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>

#include "casemate/mcp/artifacts.h"
#include "casemate/mcp/conversation.h"
#include "casemate/mcp/handles.h"
#include "casemate/mcp/questions.h"
#include "casemate/mcp/server.h"
#include "casemate/mcp/worker_pool.h"

namespace casemate::mcp {

// A request that is answered with an error. The message is the client's to read.
class RequestRefused : public std::runtime_error {
 public:
  RequestRefused(ErrorCode code, const std::string& message, int http_status = 200,
                 std::string data = {})
      : std::runtime_error(message),
        code_(code),
        http_status_(http_status),
        data_(std::move(data)) {}

  ErrorCode code() const { return code_; }
  int http_status() const { return http_status_; }
  // JSON text, or empty.
  const std::string& data() const { return data_; }

 private:
  ErrorCode code_;
  int http_status_;
  std::string data_;
};

// RFC 5424, as MCP spells it; least urgent first.
enum class Severity : std::uint8_t {
  debug,
  info,
  notice,
  warning,
  error,
  critical,
  alert,
  emergency
};
std::string_view to_string(Severity severity);
std::optional<Severity> find_severity(std::string_view text);

// What a client said that it can be asked.
struct ClientAbilities {
  // With a form.
  bool elicitation = false;
  bool sampling = false;
  bool roots = false;
};
ClientAbilities abilities_of(const boost::json::object& capabilities);

// What a dialect makes of a request, before the core serves it.
struct RequestContext {
  Revision revision = kNewestHandshake;
  // Log messages to send, this urgent or more; absent sends none.
  std::optional<Severity> log_level{};
  // JSON text to be sent back; absent: no progress.
  std::optional<std::string> progress_token{};
  ClientAbilities abilities{};

  const RevisionFeatures& features() const { return features_of(revision); }
};

// The answers to one `Peer::receive`. Goes when the last of its requests is over.
class Exchange {
 public:
  enum class Form : std::uint8_t { single, batch };
  // Of the answers to one batch, together: those that are over it are told to be asked for alone.
  static constexpr std::size_t kMaxBatchBytes = 16 * 1024 * 1024;

  Exchange(std::shared_ptr<Outlet> outlet, Form form) : outlet_(std::move(outlet)), form_(form) {}
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // `id`, for a batch: whose answer `text` is.
  void reply(const std::optional<RequestId>& id, std::string text, int http_status = 200);
  void notify(std::string text);
  // A request of ours.
  void ask(std::string text);
  // As `Outlet` has them.
  bool has_room() const;
  bool wait_for_room(const std::stop_token& stop) const;

 private:
  const std::shared_ptr<Outlet> outlet_;
  const Form form_;
  std::mutex mutex_;
  std::string batch_;
};

struct ServerState {
  explicit ServerState(ServerOptions given);

  const ServedTool* find_tool(std::string_view name) const;
  std::shared_ptr<Conversation> new_conversation();

  ServerOptions options;
  ArtifactRegistry artifacts;
  std::atomic<std::uint64_t> last_peer{0};
  std::atomic<std::size_t> in_flight{0};
  HandleRegistry handles;
  QuestionRegistry questions;
  // Held by whoever reads an artifact until the answer is on its way: each takes several times an
  // artifact's size of memory.
  std::mutex reading;
  // Last, so that it goes first: its jobs use the rest.
  WorkerPool pool;
};

// A request that is not answered yet.
struct RunningCall {
  explicit RunningCall(std::shared_ptr<ServerState> of) : server(std::move(of)) {
    ++server->in_flight;
  }
  ~RunningCall() { --server->in_flight; }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  const std::shared_ptr<ServerState> server;
  std::stop_source stop;
  // It was cancelled, or its client has gone: nothing more is sent for it.
  std::atomic<bool> silenced{false};
  // Of the pool, while it waits there; 0 before.
  std::atomic<std::uint64_t> job{0};
};

struct Peer::State {
  State(std::shared_ptr<ServerState> of, Caller who);

  // Of a handshake session; made when it is first needed. Null after `close`.
  std::shared_ptr<Conversation> session_conversation();

  const std::shared_ptr<ServerState> server;
  const Caller caller;
  const Owner owner;

  mutable std::mutex mutex;
  std::optional<Revision> revision;
  std::optional<Severity> log_level;
  std::map<RequestId, std::shared_ptr<RunningCall>> in_flight;
  ClientAbilities abilities;
  // Requests of ours that the client has yet to answer, by their ids as JSON.
  struct Asked {
    std::condition_variable_any changed;
    bool is_answered = false;
    // Absent: an error.
    std::optional<boost::json::object> result;
  };
  std::map<std::string, std::shared_ptr<Asked>> asked;
  std::uint64_t last_asked = 0;
  std::shared_ptr<Conversation> conversation;
  bool closed = false;
};

// One request, as what serves it sees it.
struct Request {
  std::shared_ptr<Peer::State> peer;
  const Message& message;
  const RequestContext& context;
};

// Results as JSON text, or `RequestRefused`. The quick ones (listing.cc).
std::string list_tools(const Request& request);
std::string list_resources(const Request& request);
std::string list_resource_templates(const Request& request);
// Capabilities of the server, for `initialize` and `server/discover`.
boost::json::object capabilities(const ServerState& server);
boost::json::object server_info(const ServerState& server);
// Adds what every result of the revision has, and for one that may be kept for a while, how long
// and by whom. Zero: not at all, and only for this caller.
enum class Kept : std::uint8_t { not_cacheable, by_anybody, by_nobody };
std::string finished_result(const Request& request, boost::json::object result, Kept kept,
                            std::string_view result_type = "complete");

// Whether that client is told of the tool: one that needs approval, only where somebody can give
// it.
bool is_offered(const ServedTool& served, const Request& request);

// Of a link in a result and of an entry of the list alike.
boost::json::object resource_json(const ServerState& server, const PublishedArtifact& published,
                                  const RequestContext& context);

// Those that run on the pool. `call` says when to stop; notifications go to `exchange`.
std::string call_tool(const Request& request, RunningCall& call, Exchange& exchange);
std::string read_resource(const Request& request);
std::string call_host_method(const Request& request, RunningCall& call, Exchange& exchange);

// The dialects. Each throws `RequestRefused` for a request that it does not take, and gives the
// answer of the methods that only it has; absent: the core's to serve.
RequestContext handshake_context(const Peer::State& peer, const Message& message);
std::optional<std::string> handshake_method(Peer::State& peer, const Request& request);
// Whether a message names the stateless revision for itself.
bool says_stateless(const Message& message);
RequestContext stateless_context(const Message& message, const Headers* headers);
std::optional<std::string> stateless_method(const Request& request);

// What a parameter must be, for a refusal: "'name' must be a string".
const boost::json::string& required_string(const boost::json::object& params, const char* name);
// `_meta` of params, or an empty object. Throws `RequestRefused` when it is none.
const boost::json::object& meta_of(const Message& message);
// A token of `_meta`, for progress. Throws `RequestRefused` when it is neither string nor integer.
std::optional<std::string> progress_token_of(const boost::json::object& meta);

}  // namespace casemate::mcp
