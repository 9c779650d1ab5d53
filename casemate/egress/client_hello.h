#pragma once

// The first thing a TLS client says, read for the one thing in it that counts here: the server
// name.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace casemate {

// Bytes on the wire until a hello is complete, records' headers included; a real one has 200 to
// 2,000.
inline constexpr std::size_t kMaxHelloBytes = 32 * 1024;

// Whether some server takes what begins so for TLS. More than clients say, because servers differ:
// a record's version means nothing (RFC 8446, 5.1; GnuTLS takes any up to 3.x, Go's any
// below 16.0), and records of alerts, of a change of cipher specs and without content may stand
// before the hello. So is the hello in the form of SSL 2, which has no server name. Nothing: more
// has to come, five bytes behind the first at most.
std::optional<bool> begins_as_tls(std::string_view bytes);

// Takes a client's bytes as they come, in any pieces and any number of records. Holds at most
// `kMaxHelloBytes`.
class ClientHelloReader {
 public:
  enum class State : std::uint8_t { more, complete, malformed };

  // Bytes behind a complete hello are not looked at. Feed nothing after `complete` or `malformed`.
  State feed(std::string_view bytes);

  // Of a complete one: the only server name, as it came; absent without the extension.
  const std::optional<std::string>& server_name() const { return server_name_; }
  // Of a complete one: the extension of Encrypted Client Hello is there, in earnest or as grease.
  bool encrypted() const { return encrypted_; }

 private:
  State take_header(std::string_view& rest);
  bool read_message();
  bool read_extensions(std::string_view bytes);

  std::string header_;
  // Of the current record, not yet arrived.
  std::size_t missing_ = 0;
  std::string message_;
  std::size_t seen_ = 0;
  std::optional<std::string> server_name_;
  bool encrypted_ = false;
};

}  // namespace casemate
