// The first message of TLS clients, as a program writes it: cut anywhere, it says the same, and the
// server it names is the only one in it.

#include "casemate/egress/client_hello.h"

#include <algorithm>
#include <string>

#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using State = ClientHelloReader::State;

struct Heard {
  State state = State::more;
  std::string name;
  bool encrypted = false;
  friend bool operator==(const Heard&, const Heard&) = default;
};

Heard hear(std::string_view bytes, std::size_t piece) {
  ClientHelloReader reader;
  Heard heard;
  while (!bytes.empty() && heard.state == State::more) {
    heard.state = reader.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  if (heard.state != State::complete) return heard;
  require(!reader.server_name() || !reader.server_name()->empty(), "a name has a letter");
  heard.name = reader.server_name().value_or("");
  heard.encrypted = reader.encrypted();
  return heard;
}

}  // namespace

void fuzz_client_hello(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = 1 + input.byte();
  const std::string_view wire = input.rest();
  const Heard whole = hear(wire, std::string_view::npos);
  require(hear(wire, piece) == whole, "in pieces it says the same");
  require(hear(wire, 1) == whole, "byte by byte it says the same");
  std::optional<bool> tls;
  for (std::size_t size = 0; size <= std::min<std::size_t>(wire.size(), 8); ++size) {
    const std::optional<bool> now = begins_as_tls(wire.substr(0, size));
    require(!tls || now == tls, "what was said once stays, whatever follows");
    tls = now;
  }
  if (whole.state != State::complete) return;
  require(tls == true, "what is a hello begins as TLS");
  require(wire.size() < 5 + kMaxHelloBytes || whole.name.size() < kMaxHelloBytes, "it is bounded");
  require(hear(std::string(wire) + "\x16\x03", piece) == whole, "what follows changes nothing");
  // In one record the name stands as it is, behind its own length.
  const auto record = static_cast<std::size_t>((static_cast<unsigned char>(wire[3]) << 8) |
                                               static_cast<unsigned char>(wire[4]));
  if (whole.name.empty() || wire.size() < 9 || record < 4) return;
  const auto message = static_cast<std::size_t>((static_cast<unsigned char>(wire[6]) << 16) |
                                                (static_cast<unsigned char>(wire[7]) << 8) |
                                                static_cast<unsigned char>(wire[8]));
  if (message + 4 > record) return;
  const std::string framed = {'\0', static_cast<char>(whole.name.size() >> 8),
                              static_cast<char>(whole.name.size() & 0xff)};
  require(wire.find(framed + whole.name) != std::string_view::npos,
          "the name is one that was sent");
}

}  // namespace casemate::fuzz
