#pragma once

// SOCKS5 (RFC 1928) as far as the proxy door speaks it: no sign-on, CONNECT to a name or to an
// address. Pure.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace casemate::guest {

enum class SocksReading : std::uint8_t { needs_more, malformed, whole };

struct SocksGreeting {
  SocksReading reading = SocksReading::needs_more;
  // Bytes it takes, once whole.
  std::size_t size = 0;
  // Whether the client would go without signing on.
  bool goes_without = false;
};

// At most 257 bytes long.
SocksGreeting read_socks_greeting(std::string_view bytes);

enum class SocksCommand : std::uint8_t { connect = 1, bind = 2, udp = 3, other = 0 };

// What a reply says (RFC 1928, section 6).
enum class SocksReply : std::uint8_t {
  succeeded = 0,
  failed = 1,
  not_allowed = 2,
  host_unreachable = 4,
  command_not_supported = 7,
  address_not_supported = 8,
};

struct SocksRequest {
  SocksReading reading = SocksReading::needs_more;
  std::size_t size = 0;
  SocksCommand command = SocksCommand::other;
  // Canonical, as `Authority::host`. Empty: the name is none that could be (a NUL, bytes beyond
  // ASCII, an empty label).
  std::string host;
  // 0 is none that could be.
  std::uint16_t port = 0;
  // With `malformed`: what to answer.
  SocksReply fault = SocksReply::failed;
};

// At most 262 bytes long.
SocksRequest read_socks_request(std::string_view bytes);

// The answer to a greeting; without a method that is ours the client is told so and closed.
std::string encode_socks_choice(bool goes_without);
// The answer to a request.
std::string encode_socks_reply(SocksReply reply);

}  // namespace casemate::guest
