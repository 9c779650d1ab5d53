#include "casemate/conformance/web_server.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <exception>
#include <string_view>

#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::conformance {
namespace {

constexpr std::string_view kAnswer =
    "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
constexpr std::size_t kMostRequest = 16 * 1024;
constexpr std::chrono::seconds kPatience{15};

}  // namespace

WebServer::WebServer()
    : listener_(sys::listen_on_loopback()), stopped_(sys::make_event()), thread_([this] {
        try {
          serve();
        } catch (const std::exception&) {
          // Nobody is answered any more, which is what the one who asked will see.
        }
      }) {}

WebServer::~WebServer() {
  sys::raise_event(stopped_.get());
  thread_.join();
}

std::string WebServer::url() const { return fmt::format("http://127.0.0.1:{}/", port()); }

void WebServer::serve() {
  while (true) {
    std::array<pollfd, 2> entries{
        pollfd{.fd = stopped_.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = listener_.socket.get(), .events = POLLIN, .revents = 0}};
    sys::poll_until(entries, std::nullopt);
    if (entries[0].revents != 0) return;
    const sys::UniqueFd connection = sys::accept_connection(listener_.socket.get());
    if (!connection) continue;
    ++connections_;
    try {
      answer(connection.get());
    } catch (const std::exception&) {
      // Whoever asked went away.
    }
  }
}

void WebServer::answer(int connection) const {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::string request;
  std::array<char, 4096> buffer{};
  while (request.find("\r\n\r\n") == std::string::npos) {
    std::array<pollfd, 2> entries{pollfd{.fd = stopped_.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = connection, .events = POLLIN, .revents = 0}};
    if (sys::poll_until(entries, until) == 0 || entries[0].revents != 0) return;
    const sys::ReceivedMessage received =
        sys::receive_message(connection, buffer, sys::Blocking::no);
    if (received.would_block) continue;
    if (received.bytes == 0 || request.size() > kMostRequest) return;
    request.append(buffer.data(), received.bytes);
  }
  // Fits into any socket's buffer.
  sys::send_message(connection, kAnswer, {}, sys::Blocking::no);
}

}  // namespace casemate::conformance
