#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace casemate::docker {

// Where an engine listens.
struct EngineAddress {
  enum class Kind : std::uint8_t { unix_socket, tcp, unusable };
  Kind kind = Kind::unix_socket;
  // Of the socket; absolute.
  std::string path{};
  std::string host{};
  std::string port{};
  // As it was given.
  std::string text{};
  // Of an unusable one: why.
  std::string why{};
  friend bool operator==(const EngineAddress&, const EngineAddress&) = default;
};

// Reads what DOCKER_HOST holds: `unix:///PATH`, a bare absolute path, `tcp://HOST[:PORT]` (2376
// unless given; an IPv6 address in brackets). Throws `InvalidArgument` for everything else, `ssh:`
// and `npipe:` included, whose transports are programs and systems that are not ours.
EngineAddress parse_engine_address(std::string_view text);

}  // namespace casemate::docker
