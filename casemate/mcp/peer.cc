// One client: what comes from it, and what is still to be answered.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <exception>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/mcp/serving.h"

namespace casemate::mcp {
namespace {

namespace json = boost::json;

constexpr int kBadRequest = 400;
constexpr int kNotFound = 404;
constexpr int kTooManyRequests = 429;

using PeerPointer = std::shared_ptr<Peer::State>;
using ExchangePointer = std::shared_ptr<Exchange>;

// Revisions before 2025-11-25 have no error without an id; to a client that has not said which it
// speaks, plain JSON-RPC.
bool leaves_out_id(const Peer::State& peer, bool stateless) {
  if (stateless) return true;
  const std::lock_guard lock(peer.mutex);
  return peer.revision && features_of(*peer.revision).error_without_id;
}

void reply_error(Exchange& exchange, const std::optional<RequestId>& id, ErrorCode code,
                 std::string_view message, int http_status, std::string_view data = {},
                 bool without_id = true) {
  exchange.reply(error_text(id, code, message, data, without_id), http_status);
}

// What runs the requests that may take a while.
using Slow = std::string (*)(const Request&, RunningCall&, Exchange&);

Slow slow_method(const ServerState& server, std::string_view method) {
  if (method == "tools/call") return call_tool;
  if (method == "resources/read" && server.options.read_artifact) {
    return [](const Request& request, RunningCall&, Exchange&) { return read_resource(request); };
  }
  return nullptr;
}

using Quick = std::string (*)(const Request&);

Quick quick_method(const ServerState& server, std::string_view method) {
  if (method == "tools/list") return list_tools;
  if (!server.options.read_artifact) return nullptr;
  if (method == "resources/list") return list_resources;
  if (method == "resources/templates/list") return list_resource_templates;
  return nullptr;
}

// Ends a request that ran: no longer in flight, and answered unless it was cancelled meanwhile.
void finish(Peer::State& peer, const RequestId& id, const std::shared_ptr<RunningCall>& call,
            Exchange& exchange, std::string text, int http_status) {
  {
    const std::lock_guard lock(peer.mutex);
    if (call->silenced) return;
    // Before the answer: the client may use the id again as soon as it has read that.
    peer.in_flight.erase(id);
  }
  exchange.reply(std::move(text), http_status);
}

void run_slow(Slow serve, const Request& request, const std::shared_ptr<RunningCall>& call,
              Exchange& exchange) {
  const RequestId& id = *request.message.id;
  if (call->silenced) return;
  std::string text;
  int http_status = 200;
  try {
    text = result_text(id, serve(request, *call, exchange));
  } catch (const RequestRefused& refusal) {
    text = error_text(id, refusal.code(), refusal.what(), refusal.data());
    http_status = refusal.http_status();
  } catch (const std::exception& failure) {
    write_log(request.peer->server->options.log, LogLevel::error,
              fmt::format("{} failed: {}", escape_for_display(request.message.method),
                          escape_for_display(failure.what())));
    text = error_text(id, ErrorCode::internal_error, "Internal error");
  }
  finish(*request.peer, id, call, exchange, std::move(text), http_status);
}

void start_slow(Slow serve, const PeerPointer& peer, const Message& message,
                const RequestContext& context, const ExchangePointer& exchange) {
  auto call = std::make_shared<RunningCall>(peer->server);
  {
    const std::lock_guard lock(peer->mutex);
    if (peer->closed) return;
    peer->in_flight.emplace(*message.id, call);
  }
  const bool posted = peer->server->pool.post(
      message.bytes, [serve, peer, message, context, call, exchange]() mutable {
        run_slow(serve, {peer, message, context}, call, *exchange);
      });
  if (posted) return;
  finish(*peer, *message.id, call, *exchange,
         error_text(message.id, ErrorCode::internal_error,
                    "Too many calls are waiting: try again later"),
         kTooManyRequests);
}

bool is_in_flight(const Peer::State& peer, const RequestId& id) {
  const std::lock_guard lock(peer.mutex);
  return peer.in_flight.contains(id);
}

// Before `initialize`, what else there is has no revision to be served under.
void refuse_uninitialised(const Peer::State& peer) {
  const std::lock_guard lock(peer.mutex);
  if (peer.revision) return;
  throw RequestRefused(ErrorCode::invalid_params,
                       "send 'initialize' first, or '_meta' with "
                       "'io.modelcontextprotocol/protocolVersion' (2026-07-28)");
}

void serve_request(const PeerPointer& peer, const Message& message, const ExchangePointer& exchange,
                   bool stateless, const Headers* headers) {
  if (is_in_flight(*peer, *message.id)) {
    throw RequestRefused(ErrorCode::invalid_request,
                         "Invalid request: a request with this id is not answered yet");
  }
  const RequestContext context =
      stateless ? stateless_context(message, headers) : handshake_context(*peer, message);
  if (message.params_fault) {
    throw RequestRefused(ErrorCode::invalid_params, "'params' must be an object");
  }
  const Request request{peer, message, context};
  const auto own = stateless ? stateless_method(request) : handshake_method(*peer, request);
  if (own) return exchange->reply(result_text(*message.id, *own));
  const Quick quick = quick_method(*peer->server, message.method);
  const Slow slow = slow_method(*peer->server, message.method);
  if (quick == nullptr && slow == nullptr) {
    throw RequestRefused(ErrorCode::method_not_found, "Method not found",
                         stateless ? kNotFound : 200);
  }
  if (!stateless) refuse_uninitialised(*peer);
  if (quick != nullptr) return exchange->reply(result_text(*message.id, quick(request)));
  start_slow(slow, peer, message, context, exchange);
}

void cancel(Peer::State& peer, const Message& message) {
  const json::value* named = message.params->if_contains("requestId");
  const auto id = named == nullptr ? std::nullopt : RequestId::from(*named);
  if (!id) return;
  std::shared_ptr<RunningCall> call;
  {
    const std::lock_guard lock(peer.mutex);
    const auto found = peer.in_flight.find(*id);
    if (found == peer.in_flight.end()) return;
    call = std::move(found->second);
    call->silenced = true;
    peer.in_flight.erase(found);
  }
  call->stop.request_stop();
}

// With the message's answers, in its order as far as they are quick.
void take(const PeerPointer& peer, const Received& received, const ExchangePointer& exchange,
          bool stateless, const Headers* headers) {
  const bool without_id = leaves_out_id(*peer, stateless);
  for (const auto& part : received.parts) {
    if (const auto* fault = std::get_if<MessageFault>(&part)) {
      reply_error(*exchange, fault->id, fault->code, fault->message, kBadRequest, {}, without_id);
      continue;
    }
    const Message& message = std::get<Message>(part);
    if (message.kind == Message::Kind::response) continue;  // nothing was asked
    if (message.kind == Message::Kind::notification) {
      if (message.method == "notifications/cancelled") cancel(*peer, message);
      continue;  // no other is of use here, and none is ever answered
    }
    try {
      if (received.batch && message.method == "initialize") {
        throw RequestRefused(ErrorCode::invalid_request,
                             "Invalid request: 'initialize' is never part of a batch");
      }
      serve_request(peer, message, exchange, stateless, headers);
    } catch (const RequestRefused& refusal) {
      reply_error(*exchange, message.id, refusal.code(), refusal.what(), refusal.http_status(),
                  refusal.data());
    }
  }
}

}  // namespace

Peer::State::State(std::shared_ptr<ServerState> of, Caller who)
    : server(std::move(of)), caller(std::move(who)), owner{caller.identity, ++server->last_peer} {}

std::shared_ptr<Conversation> Peer::State::session_conversation() {
  const std::lock_guard lock(mutex);
  if (!conversation && !closed) conversation = server->new_conversation();
  return conversation;
}

Peer::Peer(std::shared_ptr<ServerState> server, Caller caller)
    : state_(std::make_shared<State>(std::move(server), std::move(caller))) {}

Peer::~Peer() { close(); }

void Peer::receive(const Received& received, const std::shared_ptr<Outlet>& outlet,
                   const Headers* headers) {
  const bool stateless = is_stateless(received, headers);
  bool closed = false;
  bool batches = false;
  {
    const std::lock_guard lock(state_->mutex);
    closed = state_->closed;
    batches = !stateless && state_->revision && features_of(*state_->revision).batches;
  }
  const auto exchange = std::make_shared<Exchange>(
      outlet, received.batch && batches ? Exchange::Form::batch : Exchange::Form::single);
  if (closed) return;
  if (received.batch && !batches) {
    reply_error(*exchange, std::nullopt, ErrorCode::invalid_request,
                "Invalid request: this revision has no batches", kBadRequest, {},
                leaves_out_id(*state_, stateless));
    return;
  }
  take(state_, received, exchange, stateless, headers);
}

std::optional<Revision> Peer::revision() const {
  const std::lock_guard lock(state_->mutex);
  return state_->revision;
}

std::size_t Peer::in_flight() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_flight.size();
}

void Peer::close() noexcept {
  std::map<RequestId, std::shared_ptr<RunningCall>> running;
  std::shared_ptr<Conversation> conversation;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    running.swap(state_->in_flight);
    conversation.swap(state_->conversation);
    for (const auto& [id, call] : running) call->silenced = true;
  }
  for (const auto& [id, call] : running) call->stop.request_stop();
  // Its end may take a while, which is nothing for the thread that noticed that a client has gone.
  if (conversation) {
    state_->server->pool.post_always([held = std::move(conversation)]() mutable { held.reset(); });
  }
}

}  // namespace casemate::mcp
