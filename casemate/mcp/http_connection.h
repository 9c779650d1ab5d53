#pragma once

// One connection of an HTTP server: a request, its answer, the next request. For http_*.cc alone;
// all of it on the server's thread.

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/dynamic_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/mcp/http_core.h"
#include "casemate/mcp/http_stream.h"

namespace casemate::mcp {

class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = std::chrono::steady_clock;

  HttpConnection(HttpServer::Core& server, boost::asio::ip::tcp::socket socket,
                 boost::asio::ssl::context* tls);
  ~HttpConnection();

  void start();
  // Closes what waits for a request; an answer goes on.
  void close_if_idle();
  void close();

  // Since when the client owes us a request; empty while we owe him something.
  std::optional<Clock::time_point> owing_since() const;
  // A request was let in, and its answer has not ended.
  bool is_served() const;
  // Whose token the request carried.
  const std::string& caller() const { return caller_; }
  // Of a body that is not whole yet.
  std::size_t received_bytes() const;

 private:
  using error_code = boost::system::error_code;
  using Fields = std::vector<std::pair<std::string, std::string>>;

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
  using Parser = boost::beast::http::request_parser<
      boost::beast::http::basic_dynamic_body<boost::beast::flat_buffer>>;

  // One timer: its meaning is the phase's. Setting it anew forgets what it was set for.
  void patience(std::chrono::milliseconds time);
  void lose_patience();

  // Reading (http_reading.cc).
  void await_request();
  void read_some();
  void on_some(error_code error, std::size_t bytes);
  void read_head();
  void on_head(error_code error);
  std::optional<HttpRefusal> take_head();
  std::optional<HttpRefusal> check();
  void read_body();
  void on_body_part(error_code error, std::size_t before);
  void on_body();
  HttpRefusal too_long() const;
  void linger();
  void throw_away();

  // Answering (http_answering.cc).
  void refuse(const HttpRefusal& refusal);
  void send(HttpAnswer answer);
  void listen();
  void pump();
  void begin_events();
  void add_event(const EventStream::Event& event);
  void add_framed(std::string text);
  void write_events();
  void send_whole(unsigned status, HeldMessage body, Fields fields);
  void add(std::string text);
  void add(HeldMessage text);
  void write(void (*then)(HttpConnection&));
  void write_piece(void (*then)(HttpConnection&));
  void end_answer(bool whole);
  void next_request();

  HttpServer::Core& server_;
  HttpStream stream_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  HttpHead head_;
  std::string caller_;
  std::optional<HttpAnswer> answer_;
  // On its way, in order; of the first `sent_` bytes are gone.
  std::deque<HeldMessage> outgoing_;
  std::size_t outgoing_bytes_ = 0;
  std::size_t sent_ = 0;
  std::uint64_t listener_ = 0;
  Clock::time_point owing_since_ = Clock::now();
  std::size_t unwanted_bytes_ = 0;
  Phase phase_ = Phase::waiting;
  bool reading_ = false;
  bool writing_ = false;
  bool is_last_ = false;
  bool keep_alive_ = false;
  bool is_http_1_0_ = false;
};

}  // namespace casemate::mcp
