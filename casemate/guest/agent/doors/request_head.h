#pragma once

// The head of one HTTP/1.x request to a proxy (RFC 9112), read strictly: whatever two readers could
// read differently is refused. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace casemate::guest {

// Bytes of a head with its last line; what common servers take.
inline constexpr std::size_t kMaxRequestHead = 32 * 1024;
inline constexpr std::size_t kMaxRequestHeaders = 128;

// Why it is no request, in words for whoever wrote the client.
struct BadRequest {
  std::string_view why;
};

// How the bytes behind the head are parted.
struct BodyLength {
  enum class Form : std::uint8_t { none, length, chunked } form = Form::none;
  std::uint64_t bytes = 0;
  friend bool operator==(const BodyLength&, const BodyLength&) = default;
};

struct ProxyRequest {
  std::string method;
  // As the request's target says it: what is dialled. `Host` decides nothing.
  std::string host;
  std::uint16_t port = 0;
  // CONNECT; the rest is empty then.
  bool tunnel = false;
  // Whether `Host` says the same. Only to be held against a request whose target is on the list:
  // the refusal of the others is the more important one.
  bool host_agrees = true;
  BodyLength body;
  // What goes to the server: origin-form, its fields without those that are between client and
  // proxy, the connection to end with the answer. So a second request can never be on it.
  std::string forwarded_head;
};

// Where the head ends: behind its empty line. Absent: more has to come.
struct HeadEnd {
  std::optional<std::size_t> end;
};

// Looks for the end of a head in what has come so far, and refuses at once what cannot become one:
// no request's first byte, a line that ends otherwise than by CR LF, too many bytes.
std::variant<HeadEnd, BadRequest> find_head_end(std::string_view bytes);

// `head` ends with its empty line.
std::variant<ProxyRequest, BadRequest> read_request_head(std::string_view head);

}  // namespace casemate::guest
