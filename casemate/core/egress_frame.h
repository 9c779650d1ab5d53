#pragma once

// What a door of a sandbox and the host say to each other over the call's egress socket.
//
// The socket is made like the one of host tools (host_tools/channel.h, docs/host-tools.md): an
// unbound Unix stream socket of the host's, bound by the guest program where only this call's
// programs can reach it, and then listened on by the host. One connection is one tunnel:
//
//   door: request frame -> host: answer frame. After `opened` there are raw bytes in both
//   directions, so both sides may splice; each direction ends by shutdown(SHUT_WR) of its own and
//   the other goes on. After anything else the host closes.
//   Whoever closes altogether while the other side has not ended its direction breaks the tunnel
//   off: what came is not all there was, and the other end is reset (a host's reset of the server,
//   a door's of the program). To a side that has ended its own direction before, both look alike.
//
//   request: u16 bytes that follow; u8 version (1); u8 door; u16 port; u8 bytes of the host; host
//   answer:  u16 bytes that follow; u8 code; a sentence, in UTF-8 and of one line
//
// Little-endian numbers. The host reads exactly the frame, so a door may send the client's first
// bytes right behind it; a door has to read exactly the answer, too (length first, then so much).
//
// The host decides everything, by `host` and `port` alone. A door is a convenience: any process of
// the call may connect to the socket and say what it likes, and gains nothing by it. `door` is for
// the log. `host` is what the client asked for, as it came: a name of any case, with or without a
// trailing dot, or an address (IPv6 without brackets); the host judges its spelling, and a door
// need not. A tunnel that is cut off after `opened` (a server name that is not the tunnel's, a
// bound) is broken off; a TLS client is sent the alert `access_denied` first.
//
// The transparent door has a resolver. A name that it does not know is told with port 0, for the
// record: the answer is a refusal in any case, for which nobody has to wait.
//
// A door may take any number of connections; the host serves `EgressOptions::max_tunnels` of a call
// (egress/gateway.h) and answers `too_many` to more. A request that does not arrive in time is
// closed without an answer.
//
// The guest learns what its doors have to pretend from `EgressDoorRule`s, which travel as one
// string (`encode_door_rules`) in the message that opens the call. They hold no right: they only
// say which names to answer and at which ports to listen.
//
// No dependency but the standard library: linked into the static guest program too.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace casemate {

// Of a frame's length.
inline constexpr std::size_t kEgressLengthBytes = 2;
// Longest frame after its length, either way; equality passes.
inline constexpr std::size_t kMaxEgressFrame = 1024;
inline constexpr std::size_t kMinEgressRequest = 6;
// What fits its length byte; a name has at most 253.
inline constexpr std::size_t kMaxEgressHost = 255;

// Wire values; never reused.
enum class EgressDoor : std::uint8_t {
  unnamed = 0,
  transparent = 1,
  http_connect = 2,
  http_request = 3,
  socks = 4,
};

struct EgressRequest {
  EgressDoor door = EgressDoor::unnamed;
  std::string host{};
  std::uint16_t port = 0;
  friend bool operator==(const EgressRequest&, const EgressRequest&) = default;
};

// Wire values; never reused. In brackets what an HTTP proxy says with it.
enum class EgressCode : std::uint8_t {
  opened = 0,
  // Policy: the list has no entry for that host and port (403).
  not_on_list = 1,
  // Policy: the name leads to an address that names may not lead to (403).
  address_refused = 2,
  // The request or its host is malformed (400).
  malformed = 3,
  // No address for the name (502).
  unresolvable = 4,
  // It could not be connected to (502).
  unreachable = 5,
  // Resolving or connecting took too long (504).
  too_slow = 6,
  // The call has as many tunnels as it may have, or the host can take no more for now (503).
  too_many = 7,
};

struct EgressAnswer {
  EgressCode code = EgressCode::opened;
  // For the program and its author; says that it is policy where it is. Empty with `opened`.
  std::string sentence{};
  friend bool operator==(const EgressAnswer&, const EgressAnswer&) = default;
};

// 403, 400, 502, 503 or 504; 200 for `opened`.
int http_status(EgressCode code);

// Whole frames, length included. Throw `std::length_error` for a host or sentence that does not fit
// and an empty host.
std::string encode_egress(const EgressRequest& request);
std::string encode_egress(const EgressAnswer& answer);

// How many bytes follow, of the `kEgressLengthBytes` of a frame; nothing when so many cannot be
// meant.
std::optional<std::size_t> egress_frame_length(std::span<const char, kEgressLengthBytes> bytes);

// Of what follows the length. Nothing for what cannot be meant: another version, an unknown door or
// code, lengths that do not fit each other, no host, port 0 but from the transparent door, a
// sentence with control characters. What the host's bytes spell is not looked at.
std::optional<EgressRequest> decode_egress_request(std::string_view body);
std::optional<EgressAnswer> decode_egress_answer(std::string_view body);

// -- What the doors pretend ----------------------------------------------------------------------

// Hosts of one list, after entries of the same host were put together.
inline constexpr std::size_t kMaxDoorRules = 1024;
inline constexpr std::size_t kMaxDoorPorts = 64;

struct EgressDoorRule {
  // Wire values.
  enum class Form : std::uint8_t { name = 0, suffix = 1, ipv4 = 2, ipv6 = 3 };
  Form form = Form::name;
  // Canonical: lower case, no trailing dot; of a suffix without `*.`; an address as inet_ntop
  // writes it.
  std::string host{};
  // At least one, ascending, each once.
  std::vector<std::uint16_t> ports{};
  friend bool operator==(const EgressDoorRule&, const EgressDoorRule&) = default;
};

// u16 rules; each u8 form, u8 bytes of the host, host, u8 ports, u16 each. Throws
// `std::length_error` for more than the bounds above.
std::string encode_door_rules(std::span<const EgressDoorRule> rules);
// Nothing for what `encode_door_rules` cannot have made.
std::optional<std::vector<EgressDoorRule>> decode_door_rules(std::string_view bytes);

}  // namespace casemate
