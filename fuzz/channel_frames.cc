// Host-tool calls as a program writes them on its socket: cut anywhere, they are the same requests;
// what is held is bounded; answers have the form that the program's side reads.

#include <algorithm>
#include <string>
#include <vector>

#include "casemate/host_tools/channel_frame.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

constexpr std::uint64_t kMaxRequest = 200;

struct Heard {
  std::vector<ChannelRequest> requests;
  bool open = true;
  std::size_t held = 0;
};

Heard hear(std::string_view bytes, std::size_t piece) {
  ChannelReader reader(kMaxRequest);
  Heard heard;
  while (!bytes.empty() && heard.open) {
    heard.open = reader.feed(bytes.substr(0, piece), heard.requests);
    require(reader.held() <= kMaxRequest, "no more is held than a request may have");
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  heard.held = reader.held();
  return heard;
}

bool same(const ChannelRequest& one, const ChannelRequest& other) {
  return one.id == other.id && one.name == other.name && one.arguments == other.arguments &&
         one.too_large == other.too_large && one.malformed == other.malformed;
}

std::string little_endian(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

// As casemate_tools.py writes it.
std::string request_bytes(const ChannelRequest& request) {
  const std::string body = little_endian(request.id, 4) + little_endian(request.name.size(), 2) +
                           request.name + request.arguments;
  return little_endian(body.size(), 4) + body;
}

void check_answer(std::uint32_t id, const HostToolAnswer& answer) {
  const std::string bytes = encode_answer(id, answer);
  require(bytes == little_endian(answer.text().size() + 5, 4) + little_endian(id, 4) +
                       (answer.ok() ? '\0' : '\1') + answer.text(),
          "an answer is its length, the id, whether it is one, and its text");
}

}  // namespace

void fuzz_channel_frames(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = 1 + input.byte();
  const std::string_view stream = input.rest();
  const Heard heard = hear(stream, piece);
  std::size_t told = 0;
  for (const ChannelRequest& request : heard.requests) {
    told += request.name.size() + request.arguments.size();
    require(request.name.size() + request.arguments.size() <= kMaxRequest, "a request is bounded");
    require((!request.too_large && !request.malformed) ||
                (request.name.empty() && request.arguments.empty()),
            "what is no request carries nothing");
    if (!request.too_large && !request.malformed) {
      const Heard again = hear(request_bytes(request), 7);
      require(again.open && again.held == 0 && again.requests.size() == 1 &&
                  same(again.requests[0], request),
              "a request that is written as a program does reads the same");
    }
  }
  require(told <= stream.size(), "nothing is made up");
  const Heard whole = hear(stream, stream.size() + 1);
  require(whole.open == heard.open && std::ranges::equal(whole.requests, heard.requests, same),
          "how a stream is cut into pieces changes nothing");
  check_answer(static_cast<std::uint32_t>(piece), HostToolAnswer::value("{}"));
  check_answer(0, HostToolAnswer::refused("no"));
}

}  // namespace casemate::fuzz
