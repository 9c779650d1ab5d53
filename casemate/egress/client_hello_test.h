#pragma once

// For tests: the first message of TLS clients, well-formed but for what a test asks for.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace casemate {

inline std::string big_endian(std::size_t number, int width) {
  std::string bytes;
  for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
    bytes += static_cast<char>(static_cast<unsigned char>(number >> shift));
  }
  return bytes;
}

inline std::string vector_of(std::string_view content, int width) {
  return big_endian(content.size(), width) + std::string(content);
}

inline std::string tls_extension(std::size_t type, std::string_view content) {
  return big_endian(type, 2) + vector_of(content, 2);
}

// The extension of that name.
inline std::string server_name_extension(std::string_view name) {
  return tls_extension(0, vector_of(std::string(1, '\0') + vector_of(name, 2), 2));
}

// The message without records; `extensions` absent: it ends before them.
inline std::string hello_message(const std::optional<std::string>& extensions) {
  std::string body = "\x03\x03" + std::string(32, 'r') + vector_of(std::string(32, 's'), 1) +
                     vector_of("\x13\x01\x13\x02", 2) + vector_of(std::string(1, '\0'), 1);
  if (extensions) body += vector_of(*extensions, 2);
  return "\x01" + vector_of(body, 3);
}

// In records of at most `record` bytes.
inline std::string in_records(std::string_view message, std::size_t record = 16384) {
  std::string bytes;
  while (!message.empty()) {
    bytes += "\x16\x03\x01" + vector_of(message.substr(0, record), 2);
    message.remove_prefix(std::min(record, message.size()));
  }
  return bytes;
}

inline std::string client_hello(std::string_view name, std::size_t record = 16384) {
  return in_records(hello_message(tls_extension(10, "xx") + server_name_extension(name) +
                                  tls_extension(43, "yy")),
                    record);
}

}  // namespace casemate
