// What comes over a connection to the HTTP front: whatever it is, it gets answers of HTTP or none,
// and nothing reaches the application that the rules of the head do not let through.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "casemate/mcp/http_events.h"
#include "casemate/mcp/http_server.h"
#include "casemate/sys/unique_fd.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

constexpr std::size_t kMaxBody = 1000;

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return result;
}

// Its rules said again, in another way than the server says them.
bool names_loopback(std::string_view authority) {
  const std::string text = lower_case(authority);
  const auto colon = text.rfind(':');
  const bool has_port = colon != std::string::npos && text.find(']', colon) == std::string::npos;
  const std::string host = has_port ? text.substr(0, colon) : text;
  return host == "localhost" || host == "localhost." || host.starts_with("127.") ||
         (host.starts_with("[") && host.ends_with("]") &&
          (host.find("::ffff:7f") != std::string::npos || host.find("127.") != std::string::npos ||
           host.ends_with("1]")));
}

class Checking final : public mcp::HttpApplication {
 public:
  mcp::HttpAnswer answer(const mcp::HttpHead& head, std::string_view caller,
                         std::string body) override {
    const auto hold = [this](bool holds, const char* sentence) {
      if (!holds) broken = sentence;
    };
    hold(head.method == "POST" || head.method == "GET" || head.method == "DELETE",
         "only three methods are served");
    hold(head.target == "/mcp" || head.target.starts_with("/mcp?"), "only one path is served");
    hold(names_loopback(head.field("host").value_or("")), "the name asked for is ours");
    const std::string origin = lower_case(head.field("origin").value_or("http://localhost"));
    hold(origin.starts_with("http") && names_loopback(origin.substr(origin.find("//") + 2)),
         "a page that asks is ours");
    hold(body.size() <= kMaxBody, "no body is longer than its bound");
    hold(body.empty() || head.method == "POST", "a body comes with POST");
    hold(caller.empty(), "nobody has a name where no token is asked for");
    if (body.find("stream") == std::string::npos) return {.body = "{}"};
    const auto stream =
        std::make_shared<mcp::EventStream>("s", mcp::EventStream::Keeping::unread_only, 1000);
    stream->push(mcp::EventStream::Kind::notification, "{}");
    stream->push_last(mcp::EventStream::Kind::reply, "{}");
    return {.stream = stream};
  }
  std::string refusal_body(const mcp::HttpRefusal& refusal) override { return refusal.reason; }
  void tick(std::chrono::steady_clock::time_point) override {}

  std::atomic<const char*> broken{nullptr};
};

std::string exchange(std::uint16_t port, std::string_view bytes) {
  const sys::UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  require(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
          "the server takes connections");
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  while (!bytes.empty()) {
    const auto sent = send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;  // it has closed, as it may
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  shutdown(client.get(), SHUT_WR);
  std::string received;
  std::array<char, 4096> buffer{};
  while (true) {
    const auto bytes_read = recv(client.get(), buffer.data(), buffer.size(), 0);
    require(bytes_read >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK),
            "a client that has said all is not kept waiting");
    if (bytes_read <= 0) return received;
    received.append(buffer.data(), static_cast<std::size_t>(bytes_read));
  }
}

}  // namespace

void fuzz_http_requests(std::string_view bytes) {
  static Checking application;
  static mcp::HttpServer server({.max_head_bytes = 2048, .max_body_bytes = kMaxBody}, application);
  const std::string answer = exchange(server.port(), bytes.substr(0, 8192));
  if (const char* sentence = application.broken) require(false, sentence);
  if (answer.empty()) return;
  constexpr std::array<std::string_view, 11> kStatuses = {"100", "200", "400", "403", "404", "405",
                                                          "406", "413", "415", "429", "431"};
  require(answer.starts_with("HTTP/1.1 ") && answer.size() > 12 &&
              std::ranges::find(kStatuses, answer.substr(9, 3)) != kStatuses.end(),
          "an answer is HTTP, with a status that is meant");

  // An event's id is read back, whatever else is in the field.
  if (const auto id = mcp::parse_event_id(bytes)) {
    const auto again = mcp::parse_event_id(mcp::to_text(*id));
    require(again && again->stream == id->stream && again->number == id->number,
            "an event's id is one id");
  }
}

}  // namespace casemate::fuzz
