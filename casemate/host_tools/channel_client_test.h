#pragma once

// For tests: a caller on a run's socket that says exactly what it is told to.

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "casemate/host_tools/channel_frame.h"
#include "casemate/sys/socket.h"

namespace casemate {

inline std::string little_endian(std::uint64_t number, int bytes) {
  std::string text;
  for (int index = 0; index < bytes; ++index) text += static_cast<char>(number >> (8 * index));
  return text;
}

inline std::string channel_request(std::uint32_t id, std::string_view name,
                                   std::string_view arguments) {
  std::string body = little_endian(id, 4) + little_endian(name.size(), 2);
  body += name;
  body += arguments;
  return little_endian(body.size(), 4) + body;
}

class ChannelClient {
 public:
  struct Answer {
    std::uint32_t id = 0;
    bool ok = false;
    // As it stands in the frame.
    int kind = 0;
    std::string text;
  };

  explicit ChannelClient(const std::string& address) : socket_(sys::connect_to_address(address)) {}

  // Of what is sent, no more than twice that waits in the socket, whatever the machine's default
  // is.
  void set_room(int bytes) {
    if (setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) != 0) {
      throw std::system_error(errno, std::generic_category(), "SO_SNDBUF");
    }
  }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      bytes.remove_prefix(sys::send_message(socket_.get(), bytes, {}, sys::Blocking::yes));
    }
  }

  // Nothing when the host closed the connection.
  std::optional<Answer> receive() {
    const auto head = read(4);
    if (!head) return std::nullopt;
    auto body = read(number(*head, 0));
    if (!body || body->size() < 5) return std::nullopt;
    return Answer{number(*body, 0), (*body)[4] == 0, (*body)[4], body->substr(5)};
  }

  std::string call(std::string_view name, std::string_view arguments,
                   std::uint32_t id = kWaits | 7) {
    try {
      send(channel_request(id, name, arguments));
    } catch (const std::system_error&) {
      // Cut off already; why is there to be read.
    }
    const auto answer = receive();
    if (!answer) return "closed";
    return answer->id == id ? answer->text : "an answer to somebody else";
  }

  int fd() const { return socket_.get(); }

 private:
  static std::uint32_t number(std::string_view bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t index = 0; index < 4; ++index) {
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + index]))
               << (8 * index);
    }
    return value;
  }

  std::optional<std::string> read(std::size_t count) {
    std::string bytes;
    std::array<char, 65536> buffer;
    while (bytes.size() < count) {
      const auto room = std::span(buffer).first(std::min(buffer.size(), count - bytes.size()));
      const auto received = sys::receive_bytes(socket_.get(), room, sys::Blocking::yes);
      if (received.bytes == 0) return std::nullopt;
      bytes.append(buffer.data(), received.bytes);
    }
    return bytes;
  }

  sys::UniqueFd socket_;
};

}  // namespace casemate
