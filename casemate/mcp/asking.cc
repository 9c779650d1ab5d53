#include "casemate/mcp/asking.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/base/json.h"
#include "casemate/mcp/ask_client.h"

namespace casemate::mcp {
namespace {

namespace json = boost::json;

constexpr int kBadRequest = 400;

// A tool asks on the thread that runs it, as it learns of its conversation (conversation.cc).
thread_local Asking* current = nullptr;

// What a client has to have said of itself to be asked: the capability, and its form.
json::object capability_of(std::string_view method) {
  if (method == "elicitation/create") return {{"elicitation", {{"form", json::object()}}}};
  if (method == "sampling/createMessage") return {{"sampling", json::object()}};
  return {{"roots", json::object()}};
}

bool is_able(const ClientAbilities& abilities, std::string_view method) {
  if (method == "elicitation/create") return abilities.elicitation;
  if (method == "sampling/createMessage") return abilities.sampling;
  return method == "roots/list" && abilities.roots;
}

}  // namespace

std::optional<json::object> ask_client(std::string_view key, std::string_view method,
                                       const json::object& params) {
  if (current == nullptr) return std::nullopt;
  return current->ask(key, method, params);
}

Asking::Current::Current(Asking& asking) : before_(std::exchange(current, &asking)) {}
Asking::Current::~Current() { current = before_; }

Asking::Asking(const Request& request, RunningCall& call, Exchange& exchange)
    : request_(request), call_(call), exchange_(exchange) {
  const json::object& params = *request.message.params;
  const json::value* state = params.if_contains("requestState");
  // Without a state nothing was asked, whatever is said to have been answered.
  if (!request.context.features().stateless || state == nullptr) return;
  std::optional<Questions> questions;
  if (state->is_string()) {
    questions = request.peer->server->questions.take(
        state->get_string(), request.peer->caller.identity, request_digest());
  }
  if (!questions) {
    throw RequestRefused(ErrorCode::invalid_params,
                         "'requestState' is not one of this request, or not any more: send the "
                         "request without it",
                         kBadRequest);
  }
  answers_ = std::move(questions->answers);
  const json::value* given = params.if_contains("inputResponses");
  if (given == nullptr || !given->is_object()) return;
  for (const auto& [key, value] : given->get_object()) {
    if (value.is_object() && questions->keys.contains(std::string_view(key))) answers_[key] = value;
  }
}

std::optional<json::object> Asking::ask(std::string_view key, std::string_view method,
                                        const json::object& params) {
  if (!is_able(request_.context.abilities, method)) {
    for (const auto& each : capability_of(method)) missing_[each.key()] = each.value();
    return std::nullopt;
  }
  if (!request_.context.features().stateless) return ask_now(method, params);
  if (const json::value* answer = answers_.if_contains(key)) return answer->get_object();
  open_[key] = {{"method", method}, {"params", params}};
  return std::nullopt;
}

// By a request of ours, within the answer to the client's.
std::optional<json::object> Asking::ask_now(std::string_view method, const json::object& params) {
  Peer::State& peer = *request_.peer;
  const auto asked = std::make_shared<Peer::State::Asked>();
  std::string id;
  {
    const std::lock_guard lock(peer.mutex);
    id = fmt::format("\"casemate-{}\"", ++peer.last_asked);
    peer.asked.emplace(id, asked);
  }
  exchange_.ask(fmt::format(R"({{"jsonrpc":"2.0","id":{},"method":"{}","params":{}}})", id, method,
                            serialise_json(params)));
  const auto until = std::chrono::steady_clock::now() + peer.server->options.ask_patience;
  std::unique_lock lock(peer.mutex);
  const bool in_time = asked->changed.wait_until(lock, call_.stop.get_token(), until,
                                                 [&asked] { return asked->is_answered; });
  peer.asked.erase(id);
  auto answer = std::move(asked->result);
  lock.unlock();
  if (!in_time && !call_.silenced) {
    exchange_.notify(notification_text("notifications/cancelled",
                                       {{"requestId", parse_json(id)}, {"reason", "too late"}}));
  }
  return answer;
}

std::optional<std::string> Asking::instead_of_result(Outcome outcome) {
  const bool stateless = request_.context.features().stateless;
  if (stateless && outcome == Outcome::failed && open_.empty() && !missing_.empty()) {
    throw RequestRefused(
        ErrorCode::missing_client_capability, "The client cannot be asked what this needs",
        kBadRequest, serialise_json(json::object{{"requiredCapabilities", std::move(missing_)}}));
  }
  if (open_.empty()) return std::nullopt;
  Questions questions{.identity = request_.peer->caller.identity,
                      .request_digest = request_digest(),
                      .answers = std::move(answers_)};
  for (const auto& each : open_) questions.keys.emplace(std::string_view(each.key()));
  const auto state =
      request_.peer->server->questions.add(std::move(questions), request_.peer->caller.share);
  if (!state) {
    throw RequestRefused(ErrorCode::internal_error,
                         "Too many questions are open: answer them, or try again later", 429);
  }
  return finished_result(request_, {{"inputRequests", std::move(open_)}, {"requestState", *state}},
                         Kept::not_cacheable, "input_required");
}

// All but what may change from one time to the next.
std::string Asking::request_digest() const {
  json::object params = *request_.message.params;
  for (const char* name : {"_meta", "inputResponses", "requestState"}) params.erase(name);
  return sha256_hex(request_.message.method + serialise_json(params));
}

}  // namespace casemate::mcp
