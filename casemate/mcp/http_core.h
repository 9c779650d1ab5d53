#pragma once

// What the connections of one HTTP server share. For http_*.cc alone; everything in here but the
// counter belongs to the server's one thread.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "casemate/mcp/http_head.h"
#include "casemate/mcp/http_server.h"
#include "casemate/mcp/share.h"

namespace casemate::mcp {

class HttpConnection;

struct HttpServer::Core {
  Core(HttpServerOptions given, HttpApplication& served);

  // -- What connections ask for (http_admission.cc)
  // ------------------------------------------------

  // Of one caller; where nobody is asked for a token all are one.
  Share share() const { return options.tokens ? Share::three_quarters : Share::whole; }
  // Whether another request of that caller may be served.
  bool has_place_for(std::string_view caller) const;
  // Makes room for what `receiver` has received of a body: of his caller's bodies, and where all
  // together are too much of anybody's, those that have been coming for longest end. False when
  // there is no room without itself.
  bool make_room_to_receive(const HttpConnection& receiver);
  // Closes the connection that has been owing a request for longest, so that those who hold places
  // and say nothing cannot keep out who has something to say.
  bool make_room_to_connect();

  // -- Its life (http_server.cc)
  // -------------------------------------------------------------------

  void listen();
  void accept(boost::asio::ip::tcp::acceptor& acceptor);
  void admit(boost::asio::ip::tcp::socket socket);
  void tick();
  void run() noexcept;
  // The last connection has gone, for whoever stops.
  void on_none_left() { ticker.cancel(); }

  HttpServerOptions options;
  HttpApplication& application;
  HttpNames names{};
  std::optional<boost::asio::ssl::context> tls{};
  // Outlives the handlers that `io` may still hold, and with them connections.
  std::unordered_set<HttpConnection*> connections{};
  std::atomic<std::size_t> connection_count{0};
  boost::asio::io_context io{1};
  std::vector<std::unique_ptr<boost::asio::ip::tcp::acceptor>> acceptors{};
  boost::asio::steady_timer ticker{io};
  boost::asio::steady_timer accept_pause{io};
  bool stopping = false;
  std::uint16_t port = 0;
  std::thread thread{};
};

// The head of an answer, up to and without the empty line; `type` may be empty.
std::string http_head_text(unsigned status, std::string_view type,
                           const std::vector<std::pair<std::string, std::string>>& fields);

}  // namespace casemate::mcp
