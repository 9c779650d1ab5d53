// Sending answers: whole ones, and streams of events as they come.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>
#include <iterator>

#include "casemate/mcp/http_connection.h"

namespace casemate::mcp {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;

constexpr std::size_t kWritePiece = 64 * 1024;
// Longer texts are sent from where they are held, and not copied.
constexpr std::size_t kCopiedBytes = 4096;

std::string date_now() {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr)));
}

}  // namespace

std::string http_head_text(unsigned status, std::string_view type,
                           const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n",
      status, std::string_view(http::obsolete_reason(http::int_to_status(status))), date_now());
  if (!type.empty()) text += fmt::format("Content-Type: {}\r\n", type);
  for (const auto& [name, value] : fields) text += fmt::format("{}: {}\r\n", name, value);
  return text;
}

void HttpConnection::refuse(const HttpRefusal& refusal) {
  HttpAnswer answer{.status = refusal.status, .body = server_.application.refusal_body(refusal)};
  if (refusal.status == 401) answer.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (refusal.status == 405) answer.fields.emplace_back("Allow", "GET, POST, DELETE");
  // What is left of the request was not understood or is not wanted.
  if (!parser_ || !parser_->is_done()) keep_alive_ = false;
  parser_.reset();
  send(std::move(answer));
}

void HttpConnection::send(HttpAnswer answer) {
  if (!answer.stream) {
    return send_whole(answer.status, std::make_shared<const std::string>(std::move(answer.body)),
                      std::move(answer.fields));
  }
  answer_.emplace(std::move(answer));
  phase_ = Phase::deciding;
  patience(server_.options.keep_alive);
  read_some();
  if (!answer_->events_at_once && !answer_->primed) return listen();
  begin_events();
  if (answer_->primed) {
    add_framed(priming_event_text(to_text({answer_->stream->name(), answer_->after}), 1000));
  }
  listen();
  write_events();
}

void HttpConnection::listen() {
  // One message on its way to this thread at a time, however fast the stream is written.
  auto waking = std::make_shared<std::atomic<bool>>(false);
  listener_ =
      answer_->stream->listen(answer_->after, [weak = weak_from_this(), waking, &io = server_.io] {
        if (waking->exchange(true)) return;
        net::post(io, [weak, waking] {
          waking->store(false);
          if (const auto self = weak.lock()) self->pump();
        });
      });
}

// Sends what the stream has.
void HttpConnection::pump() {
  if (!answer_) return;
  auto& stream = *answer_->stream;
  // Too much was held for a client that does not read; or he has come back on another connection.
  if (stream.is_given_up() || !stream.listens(listener_)) return close();
  if (writing_ || (phase_ != Phase::deciding && phase_ != Phase::streaming)) return;
  if (phase_ == Phase::deciding) {
    const auto first = stream.next();
    if (!first) {
      // The stream ended and said nothing: its request was stopped by us, or was a notification.
      if (stream.at_end()) send_whole(202, nullptr, answer_->fields);
      return;
    }
    if (first->kind == EventStream::Kind::reply && stream.at_end()) {
      return send_whole(first->status, first->message, answer_->fields);
    }
    begin_events();
    add_event(*first);
  }
  while (outgoing_bytes_ < kWritePiece) {
    const auto event = stream.next();
    if (!event) break;
    add_event(*event);
  }
  is_last_ = stream.at_end();
  if (is_last_ && !is_http_1_0_) add("0\r\n\r\n");
  if (outgoing_.empty() && !is_last_) return;
  write_events();
}

void HttpConnection::begin_events() {
  phase_ = Phase::streaming;
  Fields fields = answer_->fields;
  // Asks a proxy to pass events on as they come.
  fields.emplace_back("X-Accel-Buffering", "no");
  if (is_http_1_0_) {
    keep_alive_ = false;
  } else {
    fields.emplace_back("Transfer-Encoding", "chunked");
  }
  if (!keep_alive_) fields.emplace_back("Connection", "close");
  add(http_head_text(200, "text/event-stream", fields) + "\r\n");
}

void HttpConnection::add_event(const EventStream::Event& event) {
  const std::string id =
      answer_->resumable ? to_text({answer_->stream->name(), event.number}) : std::string();
  const EventFrame frame = event_frame(id);
  if (!is_http_1_0_) {
    add(fmt::format("{:x}\r\n", frame.before.size() + event.message->size() + frame.behind.size()));
  }
  add(frame.before);
  add(event.message);
  add(std::string(frame.behind) + (is_http_1_0_ ? "" : "\r\n"));
}

// A part of the body.
void HttpConnection::add_framed(std::string text) {
  add(is_http_1_0_ ? std::move(text) : fmt::format("{:x}\r\n{}\r\n", text.size(), text));
}

void HttpConnection::write_events() {
  write([](HttpConnection& self) {
    if (std::exchange(self.is_last_, false)) {
      self.end_answer(true);
      return self.next_request();
    }
    self.patience(self.server_.options.keep_alive);
    self.pump();
  });
}

void HttpConnection::send_whole(unsigned status, HeldMessage body, Fields fields) {
  phase_ = Phase::sending;
  const std::size_t bytes = body ? body->size() : 0;
  if (status != 204) fields.emplace_back("Content-Length", std::to_string(bytes));
  if (!keep_alive_) fields.emplace_back("Connection", "close");
  add(http_head_text(status, bytes == 0 ? "" : "application/json", fields) + "\r\n");
  if (bytes > 0) add(std::move(body));
  write([](HttpConnection& self) {
    self.end_answer(true);
    self.next_request();
  });
}

void HttpConnection::add(std::string text) {
  outgoing_bytes_ += text.size();
  // Short texts travel together.
  if (!outgoing_.empty() && outgoing_.back()->size() + text.size() <= kCopiedBytes &&
      outgoing_.size() > (writing_ ? 1U : 0U)) {
    text.insert(0, *outgoing_.back());
    outgoing_.pop_back();
  }
  outgoing_.push_back(std::make_shared<const std::string>(std::move(text)));
}

void HttpConnection::add(HeldMessage text) {
  if (text->size() <= kCopiedBytes) return add(*text);
  outgoing_bytes_ += text->size();
  outgoing_.push_back(std::move(text));
}

void HttpConnection::write(void (*then)(HttpConnection&)) {
  if (outgoing_.empty()) return then(*this);
  writing_ = true;
  sent_ = 0;
  write_piece(then);
}

// Each piece has its own patience: a long answer may take long.
void HttpConnection::write_piece(void (*then)(HttpConnection&)) {
  patience(server_.options.write_patience);
  const std::string& first = *outgoing_.front();
  stream_.async_write_some(
      net::buffer(first.data() + sent_, std::min(first.size() - sent_, kWritePiece)),
      [self = shared_from_this(), then](error_code error, std::size_t bytes) {
        if (self->phase_ == Phase::closed) return;
        if (error) return self->close();
        self->sent_ += bytes;
        self->outgoing_bytes_ -= bytes;
        if (self->sent_ == self->outgoing_.front()->size()) {
          self->outgoing_.pop_front();
          self->sent_ = 0;
        }
        if (!self->outgoing_.empty()) return self->write_piece(then);
        self->writing_ = false;
        then(*self);
      });
}

void HttpConnection::end_answer(bool whole) {
  if (!answer_) return;
  const HttpAnswer answer = std::move(*answer_);
  answer_.reset();
  answer.stream->stop_listening(listener_);
  if (answer.ended) answer.ended(whole);
}

void HttpConnection::next_request() {
  if (keep_alive_) return await_request();
  linger();
}

}  // namespace casemate::mcp
