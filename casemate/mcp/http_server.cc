#include "casemate/mcp/http_server.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <csignal>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/mcp/http_connection.h"
#include "casemate/mcp/http_core.h"
#include "casemate/mcp/http_tls.h"
#include "casemate/sys/thread.h"

namespace casemate::mcp {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

// After an accept that failed for want of descriptors.
constexpr std::chrono::milliseconds kAcceptPause{100};

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

bool uses_tls(const HttpServerOptions& options) {
  return !options.tls_certificate.empty() || !options.tls_key.empty();
}

std::vector<tcp::endpoint> find_endpoints(const HttpServerOptions& options, net::io_context& io) {
  error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error) {
    throw InvalidArgument(fmt::format("'{}' leads to no address: {}",
                                      escape_for_display(options.host), error.message()),
                          "an address of this machine, 127.0.0.1 say");
  }
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  return endpoints;
}

bool are_loopback(const std::vector<tcp::endpoint>& endpoints) {
  return std::ranges::all_of(
      endpoints, [](const tcp::endpoint& each) { return each.address().is_loopback(); });
}

void refuse_to_be_open(const HttpServerOptions& options,
                       const std::vector<tcp::endpoint>& endpoints) {
  if (are_loopback(endpoints) || options.tokens) return;
  throw InvalidArgument(
      fmt::format("'{}' can be reached from other machines, and nobody would be asked who he is",
                  escape_for_display(options.host)),
      "name a file of bearer tokens, or listen on 127.0.0.1");
}

}  // namespace

HttpServer::Core::Core(HttpServerOptions given, HttpApplication& served)
    : options(std::move(given)), application(served) {}

void HttpServer::Core::listen() {
  const auto endpoints = find_endpoints(options, io);
  refuse_to_be_open(options, endpoints);
  names.loopback_only = are_loopback(endpoints);
  // The name that was listened on is one that clients may use.
  names.also = options.also_named;
  names.also.push_back(options.host);
  port = options.port;
  for (tcp::endpoint endpoint : endpoints) {
    endpoint.port(port);
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

void HttpServer::Core::admit(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (connections.size() >= options.max_connections && !make_room_to_connect()) {
    if (!tls) {
      const HttpRefusal refusal{429, "too many connections; try again"};
      const std::string body = application.refusal_body(refusal);
      const std::string text = http_head_text(refusal.status, "application/json",
                                              {{"Content-Length", std::to_string(body.size())},
                                               {"Connection", "close"}}) +
                               "\r\n" + body;
      socket.non_blocking(true, ignored);
      socket.write_some(net::buffer(text), ignored);
      socket.shutdown(tcp::socket::shutdown_send, ignored);
    }
    return;
  }
  std::make_shared<HttpConnection>(*this, std::move(socket), tls ? &*tls : nullptr)->start();
}

void HttpServer::Core::tick() {
  ticker.expires_after(std::chrono::seconds(1));
  ticker.async_wait([this](error_code error) {
    if (error || stopping) return;
    tick();
    application.tick(HttpConnection::Clock::now());
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
  const auto& given = core_->options;
  if (uses_tls(given)) core_->tls.emplace(make_tls(given.tls_certificate, given.tls_key));
  core_->listen();
  core_->tick();
  for (const auto& acceptor : core_->acceptors) core_->accept(*acceptor);
  const SignalsBlocked blocked;
  core_->thread = sys::start_thread([core = core_.get()] { core->run(); });
}

void HttpServer::check(const HttpServerOptions& options) {
  if (uses_tls(options)) make_tls(options.tls_certificate, options.tls_key);
  net::io_context io;
  refuse_to_be_open(options, find_endpoints(options, io));
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
