#include "casemate/mcp/http_server.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/dynamic_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <csignal>
#include <ctime>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::mcp {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;
using Clock = std::chrono::steady_clock;
using Plain = tcp::socket;
using Secure = net::ssl::stream<tcp::socket>;

constexpr std::size_t kReadPiece = 4096;
constexpr std::size_t kWritePiece = 64 * 1024;
// Of one read of heads and bodies.
constexpr std::size_t kMaxBufferBytes = 64 * 1024;
// Read and thrown away of a request that was refused, so that the answer is not lost with it.
constexpr std::size_t kMaxUnwantedBytes = 1024 * 1024;
constexpr std::chrono::milliseconds kLingering{2'000};
// After an accept that failed for want of descriptors.
constexpr std::chrono::milliseconds kAcceptPause{100};

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::string date_now() {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr)));
}

std::string head_text(unsigned status, std::string_view type,
                      const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n",
      status, std::string_view(http::obsolete_reason(http::int_to_status(status))), date_now());
  if (!type.empty()) text += fmt::format("Content-Type: {}\r\n", type);
  for (const auto& [name, value] : fields) text += fmt::format("{}: {}\r\n", name, value);
  return text;
}

// What a client sent was wrong, other than that he stopped sending.
bool is_about_content(const error_code& error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  // Closes what waits for a request; an answer goes on.
  virtual void close_if_idle() = 0;
  // Since when the client owes us a request's head; empty while we owe him something.
  virtual std::optional<Clock::time_point> owing_since() const = 0;
  virtual void close() = 0;
};

}  // namespace

// Everything but `work`, `options` and the counter is of the one thread.
struct HttpServer::Core {
  Core(HttpServerOptions given, HttpApplication& served)
      : options(std::move(given)), application(served) {}

  HttpServerOptions options;
  HttpApplication& application;
  HttpNames names{};
  std::optional<net::ssl::context> tls{};
  // Outlives the handlers that `io` may still hold, and with them connections.
  std::unordered_set<AnyConnection*> connections{};
  std::atomic<std::size_t> connection_count{0};
  net::io_context io{1};
  std::vector<std::unique_ptr<tcp::acceptor>> acceptors{};
  net::steady_timer ticker{io};
  net::steady_timer accept_pause{io};
  std::size_t receiving_bytes = 0;
  bool stopping = false;
  std::uint16_t port = 0;
  std::thread thread{};

  void listen();
  void accept(tcp::acceptor& acceptor);
  bool make_room();
  void admit(tcp::socket socket);
  void tick();
  void run() noexcept;
};

namespace {

template <typename Stream>
class Connection final : public AnyConnection,
                         public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <typename... Arguments>
  explicit Connection(HttpServer::Core& server, Arguments&&... arguments)
      : server_(server), stream_(std::forward<Arguments>(arguments)...), timer_(server.io) {
    server_.connections.insert(this);
    ++server_.connection_count;
  }
  ~Connection() override {
    server_.connections.erase(this);
    --server_.connection_count;
    // Stopping waits for the last one.
    if (server_.stopping && server_.connections.empty()) server_.ticker.cancel();
  }

  void start() {
    if constexpr (std::is_same_v<Stream, Secure>) {
      phase_ = Phase::head;
      patience(server_.options.head_patience);
      stream_.async_handshake(net::ssl::stream_base::server,
                              [self = this->shared_from_this()](error_code error) {
                                if (error) return self->close();
                                self->await_request();
                              });
    } else {
      await_request();
    }
  }

  void close_if_idle() override {
    if (phase_ == Phase::waiting) close();
  }

  std::optional<Clock::time_point> owing_since() const override {
    if (phase_ != Phase::waiting && phase_ != Phase::head) return std::nullopt;
    return owing_since_;
  }

  void close() override {
    if (phase_ == Phase::closed) return;
    end_answer(false);
    release_body();
    phase_ = Phase::closed;
    timer_.cancel();
    error_code ignored;
    socket().close(ignored);
  }

 private:
  enum class Phase {
    waiting,  // for a request
    head,     // reading one, or shaking hands
    body,
    deciding,   // the answer's stream has said nothing yet
    streaming,  // as text/event-stream
    sending,    // an answer that is whole
    lingering,  // all was said; what still comes is thrown away
    closed,
  };
  using Parser = http::request_parser<http::basic_dynamic_body<boost::beast::flat_buffer>>;

  tcp::socket& socket() {
    if constexpr (std::is_same_v<Stream, Secure>) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  // One timer: its meaning is the phase's. Setting it anew forgets what it was set for.
  void patience(std::chrono::milliseconds time) {
    timer_.expires_after(time);
    timer_.async_wait([self = this->shared_from_this()](error_code error) {
      if (error || self->timer_.expiry() > Clock::now()) return;
      self->lose_patience();
    });
  }

  void lose_patience() {
    const bool is_silent = !writing_ && (phase_ == Phase::deciding || phase_ == Phase::streaming);
    if (!is_silent) return close();
    std::string text;
    if (phase_ == Phase::deciding) text = begin_events();
    text += piece(kKeepAliveComment);
    write_events(std::move(text));
  }

  // -- Reading -----------------------------------------------------------------------------------

  void await_request() {
    if (phase_ == Phase::closed) return;
    if (server_.stopping) return close();
    phase_ = Phase::waiting;
    owing_since_ = Clock::now();
    patience(server_.options.idle_patience);
    if (buffer_.size() > 0) return read_head();
    read_some();
  }

  // Waits for bytes of the next request, or for the client's end while an answer is made.
  void read_some() {
    if (reading_) return;
    reading_ = true;
    stream_.async_read_some(buffer_.prepare(kReadPiece),
                            [self = this->shared_from_this()](error_code error, std::size_t bytes) {
                              self->reading_ = false;
                              self->on_some(error, bytes);
                            });
  }

  void on_some(error_code error, std::size_t bytes) {
    if (phase_ == Phase::closed) return;
    // A client that has ended its own direction counts as gone: nobody who waits for an answer does
    // that, and a crashed one looks the same.
    if (error) return close();
    buffer_.commit(bytes);
    if (phase_ == Phase::waiting) return read_head();
    // The next request came before this one was answered. No more is read until it is, so that the
    // client's end is noticed only when something is written to it, a keep-alive comment at the
    // latest.
    if (phase_ == Phase::lingering) throw_away();
  }

  void read_head() {
    phase_ = Phase::head;
    patience(server_.options.head_patience);
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.options.max_head_bytes));
    // Looked at by hand, so that a body which is too long gets an answer that says so.
    parser_->body_limit(boost::none);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = this->shared_from_this()](error_code error, std::size_t) { self->on_head(error); });
  }

  void on_head(error_code error) {
    if (phase_ == Phase::closed) return;
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return refuse({431, fmt::format("the head of a request may have {} bytes",
                                      server_.options.max_head_bytes)});
    }
    if (error && !is_about_content(error)) return close();
    if (error) return refuse({400, "that is no HTTP/1.1 request"});
    const auto& request = parser_->get();
    head_ = {};
    head_.method = request.method_string();
    head_.target = request.target();
    for (const auto& field : request) head_.add(field.name_string(), field.value());
    keep_alive_ = request.keep_alive();
    is_http_1_0_ = request.version() == 10;
    if (request.version() != 11 && !is_http_1_0_) return refuse({400, "HTTP/1.1 is needed"});
    if (const auto refusal = check()) return refuse(*refusal);
    if (parser_->is_done()) return on_body({});
    const auto length = parser_->content_length();
    if (length && *length > server_.options.max_body_bytes) return refuse(too_long());
    if (head_.method != "POST") return refuse({400, "a body comes with POST alone"});
    // A body of unknown length may become as long as one may be.
    const std::size_t expected =
        length ? static_cast<std::size_t>(*length) : server_.options.max_body_bytes;
    if (expected > server_.options.max_receiving_bytes - server_.receiving_bytes) {
      return refuse({429, "too much is being sent at once; try again"});
    }
    reserved_bytes_ = expected;
    server_.receiving_bytes += expected;
    parser_->body_limit(server_.options.max_body_bytes);
    phase_ = Phase::body;
    patience(server_.options.body_patience);
    if (boost::beast::iequals(request[http::field::expect], "100-continue")) {
      return write(std::string(kContinue), [](Connection& self) {
        self.patience(self.server_.options.body_patience);
        self.read_body();
      });
    }
    read_body();
  }

  HttpRefusal too_long() const {
    return {413, fmt::format("a body may have {} bytes", server_.options.max_body_bytes)};
  }

  std::optional<HttpRefusal> check() {
    if (auto refusal = check_names(head_, server_.names)) return refusal;
    caller_.clear();
    if (server_.options.tokens) {
      const auto token = bearer_token(head_);
      const auto caller = token ? server_.options.tokens->caller_of(*token) : std::nullopt;
      if (!caller) {
        return HttpRefusal{401,
                           token ? "that token is not known here" : "a bearer token is needed"};
      }
      caller_ = *caller;
    }
    return check_form(head_, server_.options.path);
  }

  void read_body() {
    if (phase_ == Phase::closed) return;
    http::async_read(
        stream_, buffer_, *parser_,
        [self = this->shared_from_this()](error_code error, std::size_t) { self->on_body(error); });
  }

  void on_body(error_code error) {
    if (phase_ == Phase::closed) return;
    if (error == http::error::body_limit) return refuse(too_long());
    if (error && !is_about_content(error)) return close();
    if (error) return refuse({400, "the body is not framed as HTTP/1.1 has it"});
    const auto bytes = parser_->get().body().cdata();
    std::string body(static_cast<const char*>(bytes.data()), bytes.size());
    parser_.reset();
    // Held until the application has it as a message of its own.
    send(server_.application.answer(head_, caller_, std::move(body)));
    release_body();
  }

  void release_body() { server_.receiving_bytes -= std::exchange(reserved_bytes_, 0); }

  // -- Answering ---------------------------------------------------------------------------------

  void refuse(const HttpRefusal& refusal) {
    HttpAnswer answer{.status = refusal.status, .body = server_.application.refusal_body(refusal)};
    if (refusal.status == 401) answer.fields.emplace_back("WWW-Authenticate", "Bearer");
    if (refusal.status == 405) answer.fields.emplace_back("Allow", "GET, POST, DELETE");
    // What is left of the request was not understood or is not wanted.
    if (!parser_ || !parser_->is_done()) keep_alive_ = false;
    release_body();
    parser_.reset();
    send(std::move(answer));
  }

  void send(HttpAnswer answer) {
    if (!answer.stream) return send_whole(answer.status, answer.body, std::move(answer.fields));
    answer_.emplace(std::move(answer));
    phase_ = Phase::deciding;
    patience(server_.options.keep_alive);
    if (buffer_.size() == 0) read_some();
    if (answer_->events_at_once || answer_->primed) {
      std::string text = begin_events();
      if (answer_->primed) {
        text += piece(priming_event_text(to_text({answer_->stream->name(), answer_->after}), 1000));
      }
      listen();
      return write_events(std::move(text));
    }
    listen();
  }

  void listen() {
    // One message on its way to this thread at a time, however fast the stream is written.
    auto waking = std::make_shared<std::atomic<bool>>(false);
    listener_ = answer_->stream->listen(answer_->after,
                                        [weak = this->weak_from_this(), waking, &io = server_.io] {
                                          if (waking->exchange(true)) return;
                                          net::post(io, [weak, waking] {
                                            waking->store(false);
                                            if (const auto self = weak.lock()) self->pump();
                                          });
                                        });
  }

  // Sends what the stream has.
  void pump() {
    if (writing_ || !answer_ || (phase_ != Phase::deciding && phase_ != Phase::streaming)) return;
    auto& stream = *answer_->stream;
    // The client has come back on another connection.
    if (!stream.listens(listener_)) return close();
    std::string text;
    if (phase_ == Phase::deciding) {
      auto first = stream.next();
      if (!first) {
        if (stream.at_end()) return finish_without_message();
        return;
      }
      if (first->kind == EventStream::Kind::reply && stream.at_end()) return send_reply(*first);
      text = begin_events();
      text += piece(event_of(*first));
    }
    while (text.size() < kWritePiece) {
      const auto event = stream.next();
      if (!event) break;
      text += piece(event_of(*event));
    }
    const bool whole = stream.at_end();
    if (whole && !is_http_1_0_) text += "0\r\n\r\n";
    if (text.empty() && !whole) return;
    is_last_ = whole;
    write_events(std::move(text));
  }

  std::string event_of(const EventStream::Event& event) const {
    const std::string id =
        answer_->resumable ? to_text({answer_->stream->name(), event.number}) : std::string();
    return event_text(id, event.message);
  }

  // A part of the body, framed.
  std::string piece(std::string_view text) const {
    return is_http_1_0_ ? std::string(text) : fmt::format("{:x}\r\n{}\r\n", text.size(), text);
  }

  std::string begin_events() {
    phase_ = Phase::streaming;
    auto fields = answer_->fields;
    // Asks a proxy to pass events on as they come.
    fields.emplace_back("X-Accel-Buffering", "no");
    if (is_http_1_0_) {
      keep_alive_ = false;
    } else {
      fields.emplace_back("Transfer-Encoding", "chunked");
    }
    if (!keep_alive_) fields.emplace_back("Connection", "close");
    return head_text(200, "text/event-stream", fields) + "\r\n";
  }

  void write_events(std::string text) {
    write(std::move(text), [](Connection& self) {
      if (std::exchange(self.is_last_, false)) {
        self.end_answer(true);
        return self.next_request();
      }
      self.patience(self.server_.options.keep_alive);
      self.pump();
    });
  }

  using Then = void (*)(Connection&);

  void write(std::string text, Then then) {
    writing_ = true;
    outgoing_ = std::move(text);
    sent_ = 0;
    write_piece(then);
  }

  // Each piece has its own patience: a long answer may take long.
  void write_piece(Then then) {
    patience(server_.options.write_patience);
    stream_.async_write_some(
        net::buffer(outgoing_.data() + sent_, std::min(outgoing_.size() - sent_, kWritePiece)),
        [self = this->shared_from_this(), then](error_code error, std::size_t bytes) {
          if (self->phase_ == Phase::closed) return;
          if (error) return self->close();
          self->sent_ += bytes;
          if (self->sent_ < self->outgoing_.size()) return self->write_piece(then);
          self->writing_ = false;
          self->outgoing_ = {};
          then(*self);
        });
  }

  void send_reply(const EventStream::Event& reply) {
    send_whole(reply.status, reply.message, answer_->fields);
  }

  // The stream ended and said nothing: its request was stopped by us, or was a notification.
  void finish_without_message() { send_whole(202, {}, answer_->fields); }

  void send_whole(unsigned status, std::string_view body,
                  std::vector<std::pair<std::string, std::string>> fields) {
    phase_ = Phase::sending;
    if (status != 204) fields.emplace_back("Content-Length", std::to_string(body.size()));
    if (!keep_alive_) fields.emplace_back("Connection", "close");
    std::string text = head_text(status, body.empty() ? "" : "application/json", fields);
    text.append("\r\n").append(body);
    write(std::move(text), [](Connection& self) {
      self.end_answer(true);
      self.next_request();
    });
  }

  void end_answer(bool whole) {
    if (!answer_) return;
    const HttpAnswer answer = std::move(*answer_);
    answer_.reset();
    answer.stream->stop_listening(listener_);
    if (answer.ended) answer.ended(whole);
  }

  void next_request() {
    if (keep_alive_) return await_request();
    linger();
  }

  // Closing with bytes unread would reset the connection, and the client might lose the answer.
  void linger() {
    phase_ = Phase::lingering;
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    patience(kLingering);
    unwanted_bytes_ = 0;
    if (!reading_) throw_away();
  }

  void throw_away() {
    buffer_.clear();
    socket().async_read_some(buffer_.prepare(kReadPiece), [self = this->shared_from_this()](
                                                              error_code error, std::size_t bytes) {
      if (self->phase_ == Phase::closed) return;
      self->unwanted_bytes_ += bytes;
      if (error || self->unwanted_bytes_ > kMaxUnwantedBytes) return self->close();
      self->throw_away();
    });
  }

  HttpServer::Core& server_;
  Stream stream_;
  net::steady_timer timer_;
  boost::beast::flat_buffer buffer_{kMaxBufferBytes};
  std::optional<Parser> parser_;
  HttpHead head_;
  std::string caller_;
  std::optional<HttpAnswer> answer_;
  std::string outgoing_;
  std::size_t sent_ = 0;
  std::uint64_t listener_ = 0;
  Clock::time_point owing_since_ = Clock::now();
  std::size_t reserved_bytes_ = 0;
  std::size_t unwanted_bytes_ = 0;
  Phase phase_ = Phase::waiting;
  bool reading_ = false;
  bool writing_ = false;
  bool is_last_ = false;
  bool keep_alive_ = false;
  bool is_http_1_0_ = false;
};

// Runs with every signal blocked: the host's handlers are the host's threads' business.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

net::ssl::context make_tls(const HttpServerOptions& options) {
  net::ssl::context context(net::ssl::context::tls_server);
  context.set_options(net::ssl::context::default_workarounds | net::ssl::context::no_sslv2 |
                      net::ssl::context::no_sslv3 | net::ssl::context::no_tlsv1 |
                      net::ssl::context::no_tlsv1_1);
  error_code error;
  context.use_certificate_chain_file(options.tls_certificate, error);
  if (error) {
    throw InvalidArgument(fmt::format("the certificate '{}' cannot be used: {}",
                                      escape_for_display(options.tls_certificate), error.message()),
                          "a PEM file with the certificate, then those of its issuers");
  }
  context.use_private_key_file(options.tls_key, net::ssl::context::pem, error);
  if (error) {
    throw InvalidArgument(fmt::format("the key '{}' cannot be used: {}",
                                      escape_for_display(options.tls_key), error.message()),
                          "the private key of the certificate, in PEM and without a passphrase");
  }
  return context;
}

}  // namespace

void HttpServer::Core::listen() {
  error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error) {
    throw InvalidArgument(fmt::format("'{}' leads to no address: {}",
                                      escape_for_display(options.host), error.message()),
                          "an address of this machine, 127.0.0.1 say");
  }
  port = options.port;
  names.also = options.also_named;
  for (const auto& entry : found) {
    tcp::endpoint endpoint = entry.endpoint();
    endpoint.port(port);
    if (!endpoint.address().is_loopback()) names.loopback_only = false;
    auto acceptor = std::make_unique<tcp::acceptor>(io);
    acceptor->open(endpoint.protocol());
    acceptor->set_option(tcp::acceptor::reuse_address(true));
    if (endpoint.protocol() == tcp::v6()) acceptor->set_option(net::ip::v6_only(true));
    acceptor->bind(endpoint);
    acceptor->listen();
    acceptor->non_blocking(true);
    port = acceptor->local_endpoint().port();
    acceptors.push_back(std::move(acceptor));
  }
  if (!names.loopback_only && !options.tokens) {
    throw InvalidArgument(
        fmt::format("'{}' can be reached from other machines, and nobody would be asked who he is",
                    escape_for_display(options.host)),
        "name a file of bearer tokens, or listen on 127.0.0.1");
  }
  // The name that was listened on is one that clients may use.
  names.also.push_back(options.host);
}

void HttpServer::Core::accept(tcp::acceptor& acceptor) {
  acceptor.async_accept([this, &acceptor](error_code error, tcp::socket socket) {
    if (stopping || error == net::error::operation_aborted) return;
    if (error) {
      write_log(options.log, LogLevel::warning,
                fmt::format("a connection could not be taken: {}", error.message()));
      accept_pause.expires_after(kAcceptPause);
      accept_pause.async_wait([this, &acceptor](error_code) {
        if (!stopping) accept(acceptor);
      });
      return;
    }
    admit(std::move(socket));
    accept(acceptor);
  });
}

// Closes the connection that has been owing a request for longest, so that those who hold places
// and say nothing cannot keep out who has something to say.
bool HttpServer::Core::make_room() {
  AnyConnection* longest = nullptr;
  for (auto* connection : connections) {
    const auto since = connection->owing_since();
    if (since && (longest == nullptr || *since < *longest->owing_since())) longest = connection;
  }
  if (longest == nullptr) return false;
  longest->close();
  return true;
}

void HttpServer::Core::admit(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (connections.size() >= options.max_connections && !make_room()) {
    if (!tls) {
      const HttpRefusal refusal{429, "too many connections; try again"};
      const std::string body = application.refusal_body(refusal);
      const std::string text =
          head_text(refusal.status, "application/json",
                    {{"Content-Length", std::to_string(body.size())}, {"Connection", "close"}}) +
          "\r\n" + body;
      socket.non_blocking(true, ignored);
      socket.write_some(net::buffer(text), ignored);
      socket.shutdown(tcp::socket::shutdown_send, ignored);
    }
    return;
  }
  if (tls) {
    std::make_shared<Connection<Secure>>(*this, std::move(socket), *tls)->start();
  } else {
    std::make_shared<Connection<Plain>>(*this, std::move(socket))->start();
  }
}

void HttpServer::Core::tick() {
  ticker.expires_after(std::chrono::seconds(1));
  ticker.async_wait([this](error_code error) {
    if (error || stopping) return;
    tick();
    application.tick(Clock::now());
  });
}

void HttpServer::Core::run() noexcept {
  while (true) {
    try {
      io.run();
      return;
    } catch (const std::exception& failure) {
      // Of one handler; what it was about is closed by its patience.
      write_log(options.log, LogLevel::error, fmt::format("HTTP: {}", failure.what()));
    }
  }
}

HttpServer::HttpServer(HttpServerOptions options, HttpApplication& application)
    : core_(std::make_unique<Core>(std::move(options), application)) {
  if (core_->options.tls_certificate.empty() != core_->options.tls_key.empty()) {
    throw InvalidArgument("TLS needs a certificate and its key; one of them is missing",
                          "give both or neither");
  }
  if (!core_->options.tls_certificate.empty()) core_->tls.emplace(make_tls(core_->options));
  core_->listen();
  core_->tick();
  for (const auto& acceptor : core_->acceptors) core_->accept(*acceptor);
  const SignalsBlocked blocked;
  core_->thread = std::thread([core = core_.get()] { core->run(); });
}

HttpServer::~HttpServer() { stop(std::chrono::milliseconds(0)); }

std::uint16_t HttpServer::port() const noexcept { return core_->port; }

std::string HttpServer::url() const {
  const auto& host = core_->options.host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}:{}{}", core_->tls ? "https" : "http", is_v6 ? "[" + host + "]" : host,
                     core_->port, core_->options.path);
}

std::size_t HttpServer::connections() const noexcept { return core_->connection_count; }

void HttpServer::run_soon(std::function<void()> work) { net::post(core_->io, std::move(work)); }

void HttpServer::stop(std::chrono::milliseconds patience) noexcept {
  if (!core_->thread.joinable()) return;
  try {
    net::post(core_->io, [core = core_.get(), patience] {
      core->stopping = true;
      for (const auto& acceptor : core->acceptors) {
        error_code ignored;
        acceptor->close(ignored);
      }
      core->accept_pause.cancel();
      // Closing takes connections out of the set, later or at once.
      for (auto* connection : std::vector(core->connections.begin(), core->connections.end())) {
        connection->close_if_idle();
      }
      core->ticker.expires_after(patience);
      core->ticker.async_wait([core](error_code) {
        for (auto* connection : std::vector(core->connections.begin(), core->connections.end())) {
          connection->close();
        }
      });
    });
  } catch (const std::exception& failure) {
    write_log(core_->options.log, LogLevel::error, fmt::format("HTTP: {}", failure.what()));
    core_->io.stop();
  }
  core_->thread.join();
}

}  // namespace casemate::mcp
