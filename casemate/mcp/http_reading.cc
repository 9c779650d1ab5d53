// Reading requests, and the life of a connection around them.

#include <fmt/format.h>

#include <boost/asio/error.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/read.hpp>

#include "casemate/mcp/http_connection.h"

namespace casemate::mcp {
namespace {

namespace http = boost::beast::http;

constexpr std::size_t kReadPiece = 4096;
// Of what was read and is not parsed yet.
constexpr std::size_t kMaxBufferBytes = 64 * 1024;
// Read and thrown away of a request that was refused, so that the answer is not lost with it.
constexpr std::size_t kMaxUnwantedBytes = 1024 * 1024;
constexpr std::chrono::milliseconds kLingering{2'000};

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// What a client sent was wrong, other than that he stopped sending.
bool is_about_content(const boost::system::error_code& error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

HttpConnection::HttpConnection(HttpServer::Core& server, boost::asio::ip::tcp::socket socket,
                               boost::asio::ssl::context* tls)
    : server_(server),
      stream_(std::move(socket), tls),
      timer_(server.io),
      buffer_(kMaxBufferBytes) {
  server_.connections.insert(this);
  ++server_.connection_count;
}

HttpConnection::~HttpConnection() {
  server_.connections.erase(this);
  --server_.connection_count;
  if (server_.stopping && server_.connections.empty()) server_.on_none_left();
}

void HttpConnection::start() {
  phase_ = Phase::head;
  patience(server_.options.head_patience);
  stream_.async_handshake([self = shared_from_this()](error_code error) {
    if (error) return self->close();
    self->await_request();
  });
}

void HttpConnection::close_if_idle() {
  if (phase_ == Phase::waiting) close();
}

void HttpConnection::close() {
  if (phase_ == Phase::closed) return;
  end_answer(false);
  parser_.reset();
  phase_ = Phase::closed;
  timer_.cancel();
  error_code ignored;
  stream_.socket().close(ignored);
}

std::optional<HttpConnection::Clock::time_point> HttpConnection::owing_since() const {
  if (phase_ != Phase::waiting && phase_ != Phase::head && phase_ != Phase::body) {
    return std::nullopt;
  }
  return owing_since_;
}

bool HttpConnection::is_served() const {
  return phase_ == Phase::body || phase_ == Phase::deciding || phase_ == Phase::streaming ||
         phase_ == Phase::sending;
}

std::size_t HttpConnection::received_bytes() const {
  return phase_ == Phase::body && parser_ ? parser_->get().body().size() : 0;
}

void HttpConnection::patience(std::chrono::milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->timer_.expiry() > Clock::now()) return;
    self->lose_patience();
  });
}

void HttpConnection::lose_patience() {
  const bool is_silent = !writing_ && (phase_ == Phase::deciding || phase_ == Phase::streaming);
  if (!is_silent) return close();
  if (phase_ == Phase::deciding) begin_events();
  add_framed(std::string(kKeepAliveComment));
  write_events();
}

void HttpConnection::await_request() {
  if (phase_ == Phase::closed) return;
  if (server_.stopping) return close();
  phase_ = Phase::waiting;
  owing_since_ = Clock::now();
  patience(server_.options.idle_patience);
  if (buffer_.size() == 0) return read_some();
  if (!reading_) return read_head();
  // What came early is read now; `on_some` goes on.
  error_code ignored;
  stream_.socket().cancel(ignored);
}

// Waits for bytes of the next request, or for the client's end while an answer is made.
void HttpConnection::read_some() {
  if (reading_) return;
  reading_ = true;
  stream_.async_read_some(buffer_.prepare(kReadPiece),
                          [self = shared_from_this()](error_code error, std::size_t bytes) {
                            self->reading_ = false;
                            self->on_some(error, bytes);
                          });
}

void HttpConnection::on_some(error_code error, std::size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error == boost::asio::error::operation_aborted && phase_ == Phase::waiting) {
    return read_head();
  }
  // A client that has ended its own direction counts as gone: nobody who waits for an answer does
  // that, and a crashed one looks the same.
  if (error) return close();
  buffer_.commit(bytes);
  if (phase_ == Phase::waiting) return read_head();
  if (phase_ == Phase::lingering) return throw_away();
  // The next requests came before this one was answered. They are kept unread, so that the client's
  // end is noticed behind them; one who sends on and on is no client that waits for an answer.
  if (buffer_.size() + kReadPiece > kMaxBufferBytes) return close();
  read_some();
}

void HttpConnection::read_head() {
  phase_ = Phase::head;
  patience(server_.options.head_patience);
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(server_.options.max_head_bytes));
  // Looked at by hand, so that a body which is too long gets an answer that says so.
  parser_->body_limit(boost::none);
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, std::size_t) { self->on_head(error); });
}

void HttpConnection::on_head(error_code error) {
  if (phase_ == Phase::closed) return;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refuse({431, fmt::format("the head of a request may have {} bytes",
                                    server_.options.max_head_bytes)});
  }
  if (error && !is_about_content(error)) return close();
  if (error) return refuse({400, "that is no HTTP/1.1 request"});
  if (const auto refusal = take_head()) return refuse(*refusal);
  if (parser_->is_done()) return on_body();
  parser_->body_limit(server_.options.max_body_bytes);
  phase_ = Phase::body;
  owing_since_ = Clock::now();
  patience(server_.options.body_patience);
  if (boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    add(std::string(kContinue));
    return write([](HttpConnection& self) {
      self.patience(self.server_.options.body_patience);
      self.read_body();
    });
  }
  read_body();
}

std::optional<HttpRefusal> HttpConnection::take_head() {
  const auto& request = parser_->get();
  head_ = {};
  head_.method = request.method_string();
  head_.target = request.target();
  for (const auto& field : request) head_.add(field.name_string(), field.value());
  keep_alive_ = request.keep_alive();
  is_http_1_0_ = request.version() == 10;
  if (request.version() != 11 && !is_http_1_0_) return HttpRefusal{400, "HTTP/1.1 is needed"};
  if (auto refusal = check()) return refusal;
  if (!server_.has_place_for(caller_)) {
    return HttpRefusal{429, "too many requests of yours at once; try again when one has ended"};
  }
  if (parser_->is_done()) return std::nullopt;
  const auto length = parser_->content_length();
  if (length && *length > server_.options.max_body_bytes) return too_long();
  if (head_.method != "POST") return HttpRefusal{400, "a body comes with POST alone"};
  return std::nullopt;
}

HttpRefusal HttpConnection::too_long() const {
  return {413, fmt::format("a body may have {} bytes", server_.options.max_body_bytes)};
}

std::optional<HttpRefusal> HttpConnection::check() {
  caller_.clear();
  if (auto refusal = check_names(head_, server_.names)) return refusal;
  if (server_.options.tokens) {
    const auto token = bearer_token(head_);
    const auto caller = token ? server_.options.tokens->caller_of(*token) : std::nullopt;
    if (!caller) {
      return HttpRefusal{401, token ? "that token is not known here" : "a bearer token is needed"};
    }
    caller_ = *caller;
  }
  return check_form(head_, server_.options.path);
}

// By parts, of which each is counted before the next is taken.
void HttpConnection::read_body() {
  if (phase_ == Phase::closed) return;
  http::async_read_some(stream_, buffer_, *parser_,
                        [self = shared_from_this(), before = received_bytes()](
                            error_code error, std::size_t) { self->on_body_part(error, before); });
}

void HttpConnection::on_body_part(error_code error, std::size_t before) {
  if (phase_ == Phase::closed) return;
  if (error == http::error::body_limit) return refuse(too_long());
  if (error && !is_about_content(error)) return close();
  if (error) return refuse({400, "the body is not framed as HTTP/1.1 has it"});
  if (parser_->is_done()) return on_body();
  if (received_bytes() > before && !server_.make_room_to_receive(*this)) {
    return refuse({429, "too much is being sent at once; try again"});
  }
  read_body();
}

void HttpConnection::on_body() {
  const auto bytes = parser_->get().body().cdata();
  std::string body(static_cast<const char*>(bytes.data()), bytes.size());
  parser_.reset();
  send(server_.application.answer(head_, caller_, std::move(body)));
}

// Closing with bytes unread would reset the connection, and the client might lose the answer.
void HttpConnection::linger() {
  phase_ = Phase::lingering;
  error_code ignored;
  stream_.socket().shutdown(HttpStream::Socket::shutdown_send, ignored);
  patience(kLingering);
  unwanted_bytes_ = 0;
  if (!reading_) throw_away();
}

void HttpConnection::throw_away() {
  buffer_.clear();
  stream_.socket().async_read_some(
      buffer_.prepare(kReadPiece),
      [self = shared_from_this()](error_code error, std::size_t bytes) {
        if (self->phase_ == Phase::closed) return;
        self->unwanted_bytes_ += bytes;
        if (error || self->unwanted_bytes_ > kMaxUnwantedBytes) return self->close();
        self->throw_away();
      });
}

}  // namespace casemate::mcp
