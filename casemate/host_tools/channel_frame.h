#pragma once

// What a program and the host say to each other over the run's socket. Little-endian numbers.
//
//   request: u32 bytes that follow; u32 id, the caller's own but for `kWaits`; u16 bytes of the
//            name; the name; the arguments, a JSON object as text
//   answer:  u32 bytes that follow; u32 id of the request; u8 0: a JSON value, 1: a refusal; its
//   text
//
// Any number of requests may be under way on a connection; answers come as they finish. Id 0 in an
// answer: of the connection, which the host then closes. 1: what was sent is no request; 2: the
// host has read nothing that it has not answered, and what was sent since may be sent again on a
// new connection. So it ends one that is one too many at its beginning, and, when another caller
// comes too many, the one that has had no call for longest: with it a caller that keeps its
// connection has to reckon whenever it sends, and behind an answer. A caller keeps its end open,
// for sending too, until it has its answer: at the end of what it sends it counts as gone. Mirrored
// in casemate/guest/support/casemate_tools.py and casemate/guest/agent/call_tool/.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/host_tools/answer.h"
#include "casemate/host_tools/held_bytes.h"

namespace casemate {

inline constexpr std::size_t kLengthBytes = 4;
// The id and the name's length.
inline constexpr std::size_t kMinRequestBytes = 6;
// Of an id: the caller sends nothing more on this connection before the answer, so that a thread
// may stay with it and no other need be told. What one sends all the same is answered, when is
// open.
inline constexpr std::uint32_t kWaits = 0x80000000;
// What an answer has beside its text; no part of what a tool may answer.
inline constexpr std::uint64_t kAnswerFramingBytes = 9;
// A request that announces more than this is not read over: the connection is closed.
inline constexpr std::uint64_t kMaxSkippedBytes = 64 * 1024 * 1024;

struct ChannelRequest {
  std::uint32_t id = 0;
  std::string name;
  std::string arguments;
  // That followed its length.
  std::uint64_t bytes = 0;
  // They were over what one request may have, and skipped.
  bool too_large = false;
  // There was no room to hold them any longer.
  bool no_room = false;
  // It cannot be taken apart.
  bool malformed = false;
  // Of what the host holds for the run; the channel's.
  HeldShare held{};
};

std::string encode_answer(std::uint32_t id, const HostToolAnswer& answer);
// Id 0, 2.
std::string encode_try_again(std::string_view why);

// Cuts what arrives into requests. Holds at most one request's bytes, and not more than has
// arrived.
class ChannelReader {
 public:
  // Requests of more than `max_bytes` after their length are skipped.
  explicit ChannelReader(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Takes all of `bytes` and appends the requests that are complete. Returns false when what came
  // can never become a request; then nothing more may be fed.
  bool feed(std::string_view bytes, std::vector<ChannelRequest>& requests);

  // Not a byte of a request has come that is not complete.
  bool between_requests() const { return length_.empty() && missing_ == 0; }
  // Bytes held for a request that is not complete.
  std::size_t held() const { return body_.size(); }
  // What is held is dropped, and the rest of that request skipped.
  void skip_current();

 private:
  bool begin();
  void finish(std::vector<ChannelRequest>& requests);

  std::uint64_t max_bytes_;
  std::string length_;
  std::string body_;
  // Bytes of the current request that have not arrived; 0 between requests.
  std::uint64_t missing_ = 0;
  std::uint64_t announced_ = 0;
  bool skipping_ = false;
  bool no_room_ = false;
};

}  // namespace casemate
