#pragma once

// A client of HTTP/1.1 for tests: sends what it is told, byte for byte, and waits for what it
// names. Blocking; every wait ends after 20 s, with a failure.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "casemate/sys/unique_fd.h"

namespace casemate::mcp {

class TestClient {
 public:
  // `receive_buffer`: how much the kernel takes for us while we do not read; 0 for what it likes.
  explicit TestClient(std::uint16_t port, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (receive_buffer > 0) {
      setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
  }

  // False when the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // All that came until `text` was in it, that included; what came behind it is kept. Ends early
  // when the server closes.
  std::string read_until(std::string_view text) {
    while (true) {
      if (const auto at = received_.find(text); at != std::string::npos) {
        std::string result = received_.substr(0, at + text.size());
        received_.erase(0, result.size());
        return result;
      }
      if (!receive()) return std::exchange(received_, {});
    }
  }

  // All until the server closes.
  std::string read_to_end() {
    while (receive()) {
    }
    return std::exchange(received_, {});
  }

  struct Answer {
    int status = 0;
    std::string head;
    std::string body;
  };
  // One answer with a Content-Length; status 0 when none came.
  Answer read_answer() {
    Answer answer;
    answer.head = read_until("\r\n\r\n");
    if (answer.head.size() < 12) return answer;
    answer.status = std::stoi(answer.head.substr(9, 3));
    const std::string_view field = "Content-Length: ";
    const auto at = answer.head.find(field);
    if (at == std::string::npos) return answer;
    const std::size_t length = std::stoul(answer.head.substr(at + field.size()));
    while (received_.size() < length && receive()) {
    }
    answer.body = received_.substr(0, length);
    received_.erase(0, answer.body.size());
    return answer;
  }

  void stop_sending() { shutdown(socket_.get(), SHUT_WR); }
  void close() { socket_.reset(); }

 private:
  bool receive() {
    char buffer[65536];
    const auto bytes = recv(socket_.get(), buffer, sizeof buffer, 0);
    EXPECT_FALSE(bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) << "nothing came in 20 s";
    if (bytes <= 0) return false;
    received_.append(buffer, static_cast<std::size_t>(bytes));
    return true;
  }

  sys::UniqueFd socket_;
  std::string received_;
};

// A POST to /mcp with `more` lines of head, each with its "\r\n".
inline std::string post_text(std::string_view body, std::string_view more = {}) {
  std::string text =
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Accept: application/json, text/event-stream\r\nContent-Length: ";
  text += std::to_string(body.size());
  text += "\r\n";
  text += more;
  text += "\r\n";
  text += body;
  return text;
}

}  // namespace casemate::mcp
