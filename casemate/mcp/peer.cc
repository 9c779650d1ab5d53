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
  exchange.reply(id, error_text(id, code, message, data, without_id), http_status);
}

// What runs the requests that may take a while.
struct Slow {
  std::string (*serve)(const Request&, RunningCall&, Exchange&) = nullptr;
  // One at a time, of all clients.
  bool one_by_one = false;
};

Slow slow_method(const ServerState& server, std::string_view method) {
  if (method == "tools/call") return {call_tool};
  if (method == "resources/read" && server.options.read_artifact) {
    return {[](const Request& request, RunningCall&, Exchange&) { return read_resource(request); },
            true};
  }
  if (server.options.methods.contains(method)) return {call_host_method};
  return {};
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
  exchange.reply(id, std::move(text), http_status);
}

void run_slow(Slow slow, const Request& request, const std::shared_ptr<RunningCall>& call,
              Exchange& exchange) {
  const RequestId& id = *request.message.id;
  const std::stop_token stop = call->stop.get_token();
  std::unique_lock one_by_one(request.peer->server->reading, std::defer_lock);
  do {
    if (one_by_one.owns_lock()) one_by_one.unlock();
    if (!exchange.wait_for_room(stop) || call->silenced) return;
    if (slow.one_by_one) one_by_one.lock();
    // Whoever read before us may have filled it.
  } while (slow.one_by_one && !exchange.has_room());
  std::string text;
  int http_status = 200;
  try {
    text = result_text(id, slow.serve(request, *call, exchange));
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

using Calls = std::vector<std::pair<RequestId, std::weak_ptr<RunningCall>>>;

void start_slow(Slow slow, const PeerPointer& peer, const Message& message,
                const RequestContext& context, const ExchangePointer& exchange, Calls& started) {
  auto call = std::make_shared<RunningCall>(peer->server);
  {
    const std::lock_guard lock(peer->mutex);
    if (peer->closed) return;
    peer->in_flight.emplace(*message.id, call);
  }
  started.emplace_back(*message.id, call);
  const std::uint64_t job =
      peer->server->pool.post(message.bytes,
                              [slow, peer, message, context, call, exchange] {
                                run_slow(slow, {peer, message, context}, call, *exchange);
                              },
                              {peer->caller.identity, peer->caller.share});
  if (job != 0) {
    call->job = job;
    // Cancelled before its number was known.
    if (call->silenced) peer->server->pool.withdraw(job);
    return;
  }
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
                   bool stateless, const Headers* headers, Calls& started) {
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
  if (own) return exchange->reply(message.id, result_text(*message.id, *own));
  const Quick quick = quick_method(*peer->server, message.method);
  const Slow slow = slow_method(*peer->server, message.method);
  if (quick == nullptr && slow.serve == nullptr) {
    throw RequestRefused(ErrorCode::method_not_found, "Method not found",
                         stateless ? kNotFound : 200);
  }
  if (!stateless) refuse_uninitialised(*peer);
  if (quick != nullptr) {
    return exchange->reply(message.id, result_text(*message.id, quick(request)));
  }
  start_slow(slow, peer, message, context, exchange, started);
}

// Of a call that is silenced: it stops, or, if it has not begun, gives up its place.
void stop_call(RunningCall& call) {
  call.stop.request_stop();
  if (const std::uint64_t job = call.job; job != 0) call.server->pool.withdraw(job);
}

// Cancels the request in flight of that id; `only`, if it is that one.
void cancel_call(Peer::State& peer, const RequestId& id, const RunningCall* only = nullptr) {
  std::shared_ptr<RunningCall> call;
  {
    const std::lock_guard lock(peer.mutex);
    const auto found = peer.in_flight.find(id);
    if (found == peer.in_flight.end()) return;
    if (only != nullptr && found->second.get() != only) return;
    call = std::move(found->second);
    call->silenced = true;
    peer.in_flight.erase(found);
  }
  stop_call(*call);
}

void cancel_named(Peer::State& peer, const Message& message) {
  const json::value* named = message.params->if_contains("requestId");
  if (named == nullptr) return;
  if (const auto id = RequestId::from(*named)) cancel_call(peer, *id);
}

// To a question of ours; one that nobody waits for is passed over.
void take_answer(Peer::State& peer, const Message& message) {
  const std::lock_guard lock(peer.mutex);
  const auto found = peer.asked.find(message.id->json());
  if (found == peer.asked.end() || found->second->is_answered) return;
  found->second->is_answered = true;
  if (!message.is_error) found->second->result = *message.params;
  found->second->changed.notify_all();
}

// With the message's answers, in its order as far as they are quick.
void take(const PeerPointer& peer, const Received& received, const ExchangePointer& exchange,
          bool stateless, const Headers* headers, Calls& started) {
  const bool without_id = leaves_out_id(*peer, stateless);
  for (const auto& part : received.parts) {
    if (const auto* fault = std::get_if<MessageFault>(&part)) {
      reply_error(*exchange, fault->id, fault->code, fault->message, kBadRequest, {}, without_id);
      continue;
    }
    const Message& message = std::get<Message>(part);
    if (message.kind == Message::Kind::response) {
      take_answer(*peer, message);
      continue;
    }
    if (message.kind == Message::Kind::notification) {
      if (message.method == "notifications/cancelled") cancel_named(*peer, message);
      continue;  // no other is of use here, and none is ever answered
    }
    try {
      if (received.batch && message.method == "initialize") {
        throw RequestRefused(ErrorCode::invalid_request,
                             "Invalid request: 'initialize' is never part of a batch");
      }
      if (received.batch && says_stateless(message)) {
        throw RequestRefused(
            ErrorCode::invalid_request,
            "Invalid request: a request of that revision is never part of a batch");
      }
      serve_request(peer, message, exchange, stateless, headers, started);
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

Unanswered Peer::receive(const Received& received, const std::shared_ptr<Outlet>& outlet,
                         const Headers* headers) {
  Unanswered unanswered;
  bool closed = false;
  bool batches = false;
  {
    const std::lock_guard lock(state_->mutex);
    closed = state_->closed;
    batches = state_->revision && features_of(*state_->revision).batches;
  }
  // A batch belongs to the session that has batches, whatever one of its parts says of itself.
  const bool stateless = !(received.batch && batches) && is_stateless(received, headers);
  const auto exchange = std::make_shared<Exchange>(
      outlet, received.batch && batches ? Exchange::Form::batch : Exchange::Form::single);
  if (closed) return unanswered;
  if (received.batch && !batches) {
    reply_error(*exchange, std::nullopt, ErrorCode::invalid_request,
                "Invalid request: this revision has no batches", kBadRequest, {},
                leaves_out_id(*state_, stateless));
    return unanswered;
  }
  take(state_, received, exchange, stateless, headers, unanswered.calls_);
  return unanswered;
}

void Peer::cancel(const Unanswered& requests) noexcept {
  for (const auto& [id, weak] : requests.calls_) {
    if (const auto call = weak.lock()) cancel_call(*state_, id, call.get());
  }
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
  for (const auto& [id, call] : running) stop_call(*call);
  // Its end may take a while, which is nothing for the thread that noticed that a client has gone.
  if (conversation) {
    state_->server->pool.post_always([held = std::move(conversation)]() mutable { held.reset(); });
  }
}

}  // namespace casemate::mcp
