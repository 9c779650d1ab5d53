// `tools/call`.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/mcp/asking.h"
#include "casemate/mcp/progress.h"
#include "casemate/mcp/serving.h"
#include "casemate/tool/refusals.h"

namespace casemate::mcp {
namespace {

namespace json = boost::json;

// As `Tool::invoke` words a refusal, for those that are the server's own.
ToolResult refused(std::string_view sentence) {
  const ModelFacingRefusal refusal{std::string(sentence)};
  ToolResult result;
  result.text = sentence_for_model(refusal);
  result.structured = serialise_json({
      {"status", failure_status(refusal)},
      {"error",
       {{"code", failure_code(refusal)},
        {"message", without_error_prefix(result.text)},
        {"hint", ""}}},
  });
  result.is_error = true;
  return result;
}

// What a call runs in, and the handle that the client may go on with.
struct Place {
  std::shared_ptr<const Conversation> conversation;
  std::optional<std::string> handle{};
  // The handle was made for this call.
  bool is_new = false;
};

// Of a tool that this client is not told of.
[[noreturn]] void refuse_unapprovable(const Request& request) {
  constexpr int kBadRequest = 400;
  const std::string why = "The tool asks for approval, and this client cannot ask its user";
  if (!request.context.features().stateless) {
    throw RequestRefused(ErrorCode::invalid_params, why);
  }
  throw RequestRefused(ErrorCode::missing_client_capability, why, kBadRequest,
                       R"({"requiredCapabilities":{"elicitation":{"form":{}}}})");
}

class Invocation {
 public:
  Invocation(const Request& request, RunningCall& call, Exchange& exchange,
             const ServedTool& served)
      : request_(request),
        server_(*request.peer->server),
        call_(call),
        served_(served),
        asking_(request, call, exchange),
        progress_(served.tool.name(), request.context, call, exchange) {
    if (const json::value* given = request.message.params->if_contains("arguments")) {
      arguments_ = *given;
    } else {
      arguments_.emplace_object();
    }
  }

  std::string run() {
    const auto started = std::chrono::steady_clock::now();
    ToolResult result;
    Place place;
    std::optional<std::string> questions;
    try {
      questions = check_approval();
      if (!questions) {
        place = find_place();
        result = invoke(serialise_json(arguments_), *place.conversation);
        questions = asking_.instead_of_result(result.is_error ? Asking::Outcome::failed
                                                              : Asking::Outcome::done);
      }
    } catch (const ModelFacingRefusal& refusal) {
      result = refused(refusal.message());
    } catch (const RequestRefused&) {
      forget_new(place);
      throw;
    }
    if (result.is_error || questions || call_.silenced) forget_new(place);
    if (questions) return *questions;
    write_log(server_.options.log, LogLevel::info,
              fmt::format("{} {} after {} ms", served_.tool.name(),
                          result.is_error ? "ran nothing" : "ended",
                          std::chrono::duration_cast<std::chrono::milliseconds>(
                              std::chrono::steady_clock::now() - started)
                              .count()));
    progress_.log(result.is_error ? Severity::warning : Severity::info,
                  result.is_error ? "ended: nothing was run" : "ended");
    return composed(std::move(result), place);
  }

 private:
  Place find_place() {
    if (!request_.context.features().stateless) {
      auto conversation = request_.peer->session_conversation();
      if (!conversation) throw ModelFacingRefusal("the session has ended.");
      return {std::move(conversation)};
    }
    if (server_.options.conversations.handles == Handles::no) return {server_.new_conversation()};
    if (json::object* object = arguments_.if_object(); object != nullptr) {
      if (const json::value* named = object->if_contains("conversation")) {
        const Place place = place_by(*named);
        object->erase("conversation");
        return place;
      }
    }
    auto conversation = server_.new_conversation();
    auto handle = server_.handles.add(conversation, request_.peer->caller.identity,
                                      request_.peer->caller.share);
    if (!handle) {
      throw ModelFacingRefusal(
          "too many conversations are open. Go on with one that an earlier result named, or try "
          "again later.");
    }
    // Held as a use, so that it does not expire under the call.
    auto use = server_.handles.use(*handle, request_.peer->caller.identity);
    if (!use) throw ModelFacingRefusal("the server is ending.");
    return {std::move(use), std::move(handle), true};
  }

  Place place_by(const json::value& named) {
    if (!named.is_string()) {
      throw ModelFacingRefusal("parameter 'conversation' must be a string.");
    }
    std::string handle(named.get_string());
    auto use = server_.handles.use(handle, request_.peer->caller.identity);
    if (!use) {
      throw ModelFacingRefusal(
          "parameter 'conversation' names none that exists: it may have expired. Leave it out to "
          "begin a new one.");
    }
    return {std::move(use), std::move(handle)};
  }

  // Nobody will know the handle.
  void forget_new(Place& place) {
    if (!place.is_new) return;
    server_.handles.forget(*place.handle);
    place.handle.reset();
  }

  // Absent: approved. Otherwise what the client is asked first.
  std::optional<std::string> check_approval() {
    if (served_.tool.approval_mode() != ApprovalMode::always_require) return std::nullopt;
    const std::string arguments = serialise_json(arguments_);
    bool approved = false;
    if (server_.options.approve) {
      try {
        approved = server_.options.approve(
            {served_.tool.name(), arguments, request_.peer->caller.identity},
            call_.stop.get_token());
      } catch (const std::exception& failure) {
        write_log(
            server_.options.log, LogLevel::error,
            fmt::format("asking for approval failed: {}", escape_for_display(failure.what())));
      }
    } else {
      const auto answer = asking_.ask("approval", "elicitation/create", approval_form(arguments));
      if (auto questions = asking_.instead_of_result(Asking::Outcome::done)) return questions;
      const json::value* action = answer ? answer->if_contains("action") : nullptr;
      approved = action != nullptr && *action == "accept";
    }
    if (!approved) throw ModelFacingRefusal("the call was not approved.");
    return std::nullopt;
  }

  // A form without fields: to accept it is the answer. It shows all that would be done; who
  // approves must not be shown a part.
  json::object approval_form(const std::string& arguments) const {
    constexpr std::size_t kMaxShown = 64 * 1024;
    if (arguments.size() > kMaxShown) {
      throw ModelFacingRefusal(fmt::format(
          "arguments of more than {} bytes cannot be shown to whoever approves.", kMaxShown));
    }
    return {{"message", fmt::format("Allow the tool '{}' to run with these arguments?\n\n{}",
                                    served_.tool.name(), arguments)},
            {"requestedSchema", {{"type", "object"}, {"properties", json::object()}}}};
  }

  ToolResult invoke(const std::string& arguments, const Conversation& conversation) {
    const Conversation::Current current(conversation);
    const Asking::Current asking(asking_);
    ToolCall listeners;
    listeners.control.stop = call_.stop.get_token();
    listeners.progress = [this](std::string_view step) { progress_.step(step); };
    if (request_.context.progress_token) {
      listeners.on_output = [this](OutputStream, std::span<const char> bytes) {
        progress_.output(bytes.size());
      };
    }
    return served_.tool.invoke(arguments, listeners);
  }

  std::string composed(ToolResult result, const Place& place) {
    const RevisionFeatures& features = request_.context.features();
    json::array content;
    if (served_.content) {
      content = served_.content(result);
    } else {
      content.push_back({{"type", "text"}, {"text", std::move(result.text)}});
    }
    const std::vector<PublishedArtifact> published = publish(result.artifacts);
    if (features.structured) {
      for (const PublishedArtifact& one : published) {
        json::object link = resource_json(server_, one, request_.context);
        link["type"] = "resource_link";
        content.push_back(std::move(link));
      }
    } else if (!published.empty()) {
      // These revisions have no links: the addresses are told.
      std::string text = "Resources:";
      for (const PublishedArtifact& one : published) text += "\n- " + one.uri;
      content.push_back({{"type", "text"}, {"text", std::move(text)}});
    }
    if (place.handle) {
      content.push_back({{"type", "text"}, {"text", "conversation: " + *place.handle}});
    }
    json::object object;
    object["content"] = std::move(content);
    if (features.structured) {
      if (auto structured = structured_content(result.structured, published, place)) {
        object["structuredContent"] = std::move(*structured);
      }
    }
    object["isError"] = result.is_error;
    return finished_result(request_, std::move(object), Kept::not_cacheable);
  }

  std::vector<PublishedArtifact> publish(const std::vector<LandedArtifact>& artifacts) {
    std::vector<PublishedArtifact> published;
    if (!server_.options.read_artifact) return published;
    for (const LandedArtifact& artifact : artifacts) {
      published.push_back({server_.artifacts.publish(artifact, request_.peer->owner), artifact,
                           request_.peer->owner});
    }
    return published;
  }

  // The tool's own object, with an address for each artifact that it lists.
  std::optional<json::object> structured_content(const std::string& text,
                                                 const std::vector<PublishedArtifact>& published,
                                                 const Place& place) {
    // Two streams, each perhaps six times its size when it is all control characters, and twice
    // that in base64.
    constexpr std::size_t kMaxBytes = 64 * 1024 * 1024;
    json::object object;
    if (!text.empty()) {
      try {
        json::value value = parse_json(text, {.max_bytes = kMaxBytes});
        if (!value.is_object()) throw JsonError("it is no object");
        object = std::move(value.get_object());
      } catch (const JsonError& error) {
        write_log(server_.options.log, LogLevel::error,
                  fmt::format("the structured result of '{}' is left out: {}", served_.tool.name(),
                              error.what()));
      }
    }
    json::value* listed = object.if_contains("artifacts");
    if (listed != nullptr && listed->is_array() && listed->get_array().size() == published.size()) {
      json::array& entries = listed->get_array();
      for (std::size_t at = 0; at < entries.size(); ++at) {
        if (entries[at].is_object()) entries[at].get_object()["uri"] = published[at].uri;
      }
    }
    if (place.handle) object["conversation"] = *place.handle;
    if (object.empty()) return std::nullopt;
    return object;
  }

  const Request& request_;
  ServerState& server_;
  RunningCall& call_;
  const ServedTool& served_;
  Asking asking_;
  CallProgress progress_;
  json::value arguments_;
};

}  // namespace

std::string call_tool(const Request& request, RunningCall& call, Exchange& exchange) {
  const std::string name(required_string(*request.message.params, "name"));
  const ServedTool* served = request.peer->server->find_tool(name);
  if (served == nullptr) throw RequestRefused(ErrorCode::invalid_params, "Unknown tool");
  if (!is_offered(*served, request)) refuse_unapprovable(request);
  return Invocation(request, call, exchange, *served).run();
}

}  // namespace casemate::mcp
