#include "casemate/mcp/http.h"

#include <fmt/format.h>

#include <atomic>
#include <optional>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/mcp/http_outlet.h"
#include "casemate/mcp/http_sessions.h"
#include "casemate/mcp/revision.h"

namespace casemate::mcp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kSessionField = "mcp-session-id";
constexpr std::string_view kVersionField = "mcp-protocol-version";
constexpr std::size_t kStreamNameBytes = 8;

HttpAnswer refused(unsigned status, std::string_view reason) {
  return {.status = status, .body = error_text(std::nullopt, ErrorCode::invalid_request, reason)};
}

bool is_fault(const Received& received) {
  return received.parts.size() == 1 && std::holds_alternative<MessageFault>(received.parts.front());
}

}  // namespace

class HttpFront::Application final : public HttpApplication {
 public:
  Application(Server server, const HttpOptions& options)
      : server_(std::move(server)),
        asks_for_tokens_(options.http.tokens != nullptr),
        max_notification_bytes_(options.max_notification_bytes),
        answers_(std::make_shared<AnswerStore>(options.max_answer_bytes)),
        sessions_({.max_sessions = options.max_sessions,
                   .share = options.http.tokens ? Share::three_quarters : Share::whole,
                   .max_streams = options.max_streams,
                   .idle = options.session_idle,
                   .resume_within = options.resume_within}) {}

  HttpAnswer answer(const HttpHead& head, std::string_view caller, std::string body) override {
    if (stopped_) return refused(503, "the server is stopping");
    HttpAnswer result = head.method == "POST"  ? post(head, caller, body)
                        : head.method == "GET" ? get(head, caller)
                                               : remove(head, caller);
    session_count_ = sessions_.size();
    return result;
  }

  std::string refusal_body(const HttpRefusal& refusal) override {
    return error_text(std::nullopt, ErrorCode::invalid_request, refusal.reason);
  }

  void tick(Clock::time_point now) override {
    sessions_.sweep(now);
    session_count_ = sessions_.size();
  }

  // On the server's thread.
  void end_all() {
    stopped_ = true;
    sessions_.end_all();
    session_count_ = 0;
    for (const auto& peer : lone_peers_) peer->close();
  }

  std::size_t sessions() const noexcept { return session_count_; }

 private:
  Caller caller_named(std::string_view name) const {
    return {.identity = asks_for_tokens_ ? std::string(name) : "http",
            .is_one_client = asks_for_tokens_,
            .share = asks_for_tokens_ ? Share::three_quarters : Share::whole};
  }

  std::shared_ptr<EventStream> make_stream(EventStream::Keeping keeping,
                                           std::string_view caller) const {
    return std::make_shared<EventStream>(random_hex(kStreamNameBytes), keeping,
                                         max_notification_bytes_, answers_, std::string(caller));
  }

  HttpAnswer post(const HttpHead& head, std::string_view caller, const std::string& body) {
    const Received received = read_message(body, server_.message_bounds());
    const auto version = head.field(kVersionField);
    if (is_stateless(received, &head.fields)) return post_alone(received, head, caller);
    if (version && !find_revision(*version)) {
      return refused(400, "the revision in MCP-Protocol-Version is not served");
    }
    if (const auto id = head.field(kSessionField)) {
      const auto session = sessions_.find(*id, caller);
      if (!session) return unknown_session();
      return post_in(session, received, head);
    }
    if (received.method() == "initialize") return open_session(received, head, caller);
    // What is no message gets the error that says so, wherever it was meant to go.
    if (is_fault(received)) return post_alone(received, head, caller);
    return refused(400,
                   "Mcp-Session-Id is missing: begin with initialize, or name the revision of "
                   "the request in its _meta");
  }

  // A request of the stateless revision: a client of its own, gone with its answer.
  HttpAnswer post_alone(const Received& received, const HttpHead& head, std::string_view caller) {
    const std::shared_ptr<Peer> peer = server_.connect(caller_named(caller));
    const auto stream = make_stream(EventStream::Keeping::unread_only, caller);
    peer->receive(received, std::make_shared<StreamOutlet>(stream), &head.fields);
    lone_peers_.insert(peer);
    return {.stream = stream, .ended = [this, peer](bool) {
              peer->close();
              lone_peers_.erase(peer);
            }};
  }

  HttpAnswer open_session(const Received& received, const HttpHead& head, std::string_view caller) {
    if (sessions_.full(caller))
      return refused(429, "too many sessions; end one, or try again later");
    const std::shared_ptr<Peer> peer = server_.connect(caller_named(caller));
    const auto stream = make_stream(EventStream::Keeping::unread_only, caller);
    peer->receive(received, std::make_shared<StreamOutlet>(stream), &head.fields);
    HttpAnswer answer{.stream = stream};
    if (peer->revision()) {
      const auto session = std::make_shared<HttpSession>(std::string(caller), peer, Clock::now());
      answer.fields.emplace_back("Mcp-Session-Id", sessions_.open(session));
    }
    return answer;
  }

  HttpAnswer post_in(const std::shared_ptr<HttpSession>& session, const Received& received,
                     const HttpHead& head) {
    session->touch(Clock::now());
    // Only calls take long enough to be come back for.
    const bool is_call = received.method() == "tools/call" || received.batch;
    const bool is_slow = is_call || received.method() == "resources/read";
    if (is_slow && session->open_streams() >= sessions_.limits().max_streams) {
      return refused(429, "too many calls of this session at once; try again when one has ended");
    }
    const auto stream =
        make_stream(is_call ? EventStream::Keeping::everything : EventStream::Keeping::unread_only,
                    session->caller());
    Unanswered requests =
        session->peer().receive(received, std::make_shared<StreamOutlet>(stream), &head.fields);
    if (is_call) session->keep(stream, std::move(requests), sessions_.limits());
    HttpAnswer answer{.stream = stream};
    if (is_call) {
      answer.resumable = true;
      // Older clients take an event without data for a broken message.
      answer.primed = session->peer().revision() == Revision::v2025_11_25;
      answer.ended = [session, stream, primed = answer.primed](bool) {
        const bool knows_an_id = primed || stream->last_read() > 0;
        session->left(*stream,
                      knows_an_id ? HttpSession::Return::possible : HttpSession::Return::impossible,
                      Clock::now());
      };
    } else {
      if (is_slow) session->begin_once();
      answer.ended = [session, is_slow, requests = std::move(requests)](bool whole) {
        if (is_slow) session->end_once();
        // Nobody can come back for it.
        if (!whole) session->peer().cancel(requests);
        session->touch(Clock::now());
      };
    }
    return answer;
  }

  HttpAnswer get(const HttpHead& head, std::string_view caller) {
    if (head.field(kVersionField) == to_string(kStateless)) {
      return refused(405, "this revision has no GET stream");
    }
    const auto id = head.field(kSessionField);
    if (!id) return refused(400, "Mcp-Session-Id is missing");
    const auto session = sessions_.find(*id, caller);
    if (!session) return unknown_session();
    session->touch(Clock::now());
    HttpAnswer answer{.events_at_once = true, .resumable = true};
    answer.primed = session->peer().revision() == Revision::v2025_11_25;
    if (const auto last = head.field("last-event-id")) {
      const auto event = parse_event_id(*last);
      answer.stream = event ? session->find_stream(event->stream) : nullptr;
      if (!answer.stream || event->number > answer.stream->last_number()) {
        return refused(400, "Last-Event-ID names no event that is kept here");
      }
      answer.after = event->number;
    } else {
      if (session->open_streams() >= sessions_.limits().max_streams) {
        return refused(429, "too many streams of this session");
      }
      // Nothing that a server says here belongs to no request: it stays silent.
      answer.stream = make_stream(EventStream::Keeping::unread_only, caller);
      session->keep(answer.stream, {}, sessions_.limits());
    }
    answer.ended = [session, stream = answer.stream](bool) {
      session->left(*stream, HttpSession::Return::possible, Clock::now());
    };
    return answer;
  }

  HttpAnswer remove(const HttpHead& head, std::string_view caller) {
    if (head.field(kVersionField) == to_string(kStateless)) {
      return refused(405, "this revision has no sessions");
    }
    const auto id = head.field(kSessionField);
    if (!id) return refused(400, "Mcp-Session-Id is missing");
    if (!sessions_.end(*id, caller)) return unknown_session();
    return {.status = 204};
  }

  static HttpAnswer unknown_session() {
    return refused(404, "there is no such session (any more); begin with initialize");
  }

  const Server server_;
  const bool asks_for_tokens_;
  const std::size_t max_notification_bytes_;
  const std::shared_ptr<AnswerStore> answers_;
  HttpSessions sessions_;
  std::unordered_set<std::shared_ptr<Peer>> lone_peers_;
  bool stopped_ = false;
  std::atomic<std::size_t> session_count_{0};
};

HttpFront::HttpFront(const Server& server, HttpOptions options) {
  options.http.max_body_bytes = server.message_bounds().max_bytes;
  application_ = std::make_unique<Application>(server, options);
  server_ = std::make_unique<HttpServer>(std::move(options.http), *application_);
}

HttpFront::~HttpFront() { stop(std::chrono::milliseconds(0)); }

std::uint16_t HttpFront::port() const noexcept { return server_->port(); }
std::string HttpFront::url() const { return server_->url(); }
std::size_t HttpFront::connections() const noexcept { return server_->connections(); }
std::size_t HttpFront::sessions() const noexcept { return application_->sessions(); }

void HttpFront::stop(std::chrono::milliseconds patience) noexcept {
  try {
    server_->run_soon([application = application_.get()] { application->end_all(); });
  } catch (const std::bad_alloc&) {
    // The sessions then end with the application.
  }
  server_->stop(patience);
}

}  // namespace casemate::mcp
