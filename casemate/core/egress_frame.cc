#include "casemate/core/egress_frame.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>

namespace casemate {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr auto kLastDoor = static_cast<std::uint8_t>(EgressDoor::socks);
constexpr auto kLastCode = static_cast<std::uint8_t>(EgressCode::too_many);
constexpr auto kLastForm = static_cast<std::uint8_t>(EgressDoorRule::Form::ipv6);

char byte(std::size_t value) { return static_cast<char>(static_cast<unsigned char>(value)); }

void append_u16(std::string& bytes, std::size_t value) {
  bytes += byte(value & 0xff);
  bytes += byte(value >> 8);
}

std::string frame(std::string_view body) {
  if (body.size() > kMaxEgressFrame) {
    throw std::length_error("a frame of egress has at most 1024 bytes");
  }
  std::string bytes;
  append_u16(bytes, body.size());
  return bytes.append(body);
}

void append_host(std::string& bytes, std::string_view host) {
  if (host.empty() || host.size() > kMaxEgressHost) {
    throw std::length_error("a host has 1 to 255 bytes");
  }
  bytes += byte(host.size());
  bytes.append(host);
}

// Takes a body apart; once something was missing, everything is.
class Cutter {
 public:
  explicit Cutter(std::string_view bytes) : rest_(bytes) {}

  std::uint8_t u8() {
    const std::string_view taken = take(1);
    return taken.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(taken[0]);
  }
  std::uint16_t u16() {
    const unsigned low = u8();
    const unsigned high = u8();
    return static_cast<std::uint16_t>(low | (high << 8));
  }
  std::string_view take(std::size_t count) {
    sound_ = sound_ && count <= rest_.size();
    if (!sound_) return {};
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view rest() { return take(rest_.size()); }
  bool sound() const { return sound_; }
  bool ended() const { return sound_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool sound_ = true;
};

bool is_control(char character) {
  return static_cast<unsigned char>(character) < 0x20 || character == '\x7f';
}

std::optional<EgressDoorRule> next_rule(Cutter& cutter) {
  const std::uint8_t form = cutter.u8();
  EgressDoorRule rule;
  rule.host = cutter.take(cutter.u8());
  const std::size_t ports = cutter.u8();
  if (form > kLastForm || rule.host.empty() || ports == 0 || ports > kMaxDoorPorts) return {};
  rule.form = static_cast<EgressDoorRule::Form>(form);
  for (std::size_t index = 0; index < ports; ++index) rule.ports.push_back(cutter.u16());
  const bool ascending =
      std::ranges::adjacent_find(rule.ports, std::greater_equal<>()) == rule.ports.end();
  if (!cutter.sound() || rule.ports.front() == 0 || !ascending) return {};
  return rule;
}

}  // namespace

int http_status(EgressCode code) {
  switch (code) {
    case EgressCode::opened:
      return 200;
    case EgressCode::not_on_list:
    case EgressCode::address_refused:
      return 403;
    case EgressCode::malformed:
      return 400;
    case EgressCode::unresolvable:
    case EgressCode::unreachable:
      return 502;
    case EgressCode::too_slow:
      return 504;
    case EgressCode::too_many:
      return 503;
  }
  return 502;
}

std::string encode_egress(const EgressRequest& request) {
  std::string body;
  body += byte(kVersion);
  body += byte(static_cast<std::uint8_t>(request.door));
  append_u16(body, request.port);
  append_host(body, request.host);
  return frame(body);
}

std::string encode_egress(const EgressAnswer& answer) {
  std::string body;
  body += byte(static_cast<std::uint8_t>(answer.code));
  return frame(body.append(answer.sentence));
}

std::optional<std::size_t> egress_frame_length(std::span<const char, kEgressLengthBytes> bytes) {
  Cutter cutter({bytes.data(), bytes.size()});
  const std::size_t length = cutter.u16();
  if (length == 0 || length > kMaxEgressFrame) return {};
  return length;
}

std::optional<EgressRequest> decode_egress_request(std::string_view body) {
  if (body.size() > kMaxEgressFrame) return {};
  Cutter cutter(body);
  const std::uint8_t version = cutter.u8();
  const std::uint8_t door = cutter.u8();
  EgressRequest request;
  request.port = cutter.u16();
  request.host = cutter.take(cutter.u8());
  if (!cutter.ended() || version != kVersion || door > kLastDoor || request.host.empty()) {
    return {};
  }
  request.door = static_cast<EgressDoor>(door);
  // A name that the transparent door's resolver did not know, for the record.
  if (request.port == 0 && request.door != EgressDoor::transparent) return {};
  return request;
}

std::optional<EgressAnswer> decode_egress_answer(std::string_view body) {
  if (body.size() > kMaxEgressFrame) return {};
  Cutter cutter(body);
  const std::uint8_t code = cutter.u8();
  EgressAnswer answer;
  answer.sentence = cutter.rest();
  if (!cutter.sound() || code > kLastCode || std::ranges::any_of(answer.sentence, is_control)) {
    return {};
  }
  answer.code = static_cast<EgressCode>(code);
  return answer;
}

std::string encode_door_rules(std::span<const EgressDoorRule> rules) {
  if (rules.size() > kMaxDoorRules) {
    throw std::length_error("an egress list has at most 1024 hosts");
  }
  std::string bytes;
  append_u16(bytes, rules.size());
  for (const EgressDoorRule& rule : rules) {
    if (rule.ports.empty() || rule.ports.size() > kMaxDoorPorts) {
      throw std::length_error("a host of an egress list has 1 to 64 ports");
    }
    bytes += byte(static_cast<std::uint8_t>(rule.form));
    append_host(bytes, rule.host);
    bytes += byte(rule.ports.size());
    for (const std::uint16_t port : rule.ports) append_u16(bytes, port);
  }
  return bytes;
}

std::optional<std::vector<EgressDoorRule>> decode_door_rules(std::string_view bytes) {
  Cutter cutter(bytes);
  const std::size_t count = cutter.u16();
  if (!cutter.sound() || count > kMaxDoorRules) return {};
  std::vector<EgressDoorRule> rules;
  while (rules.size() < count) {
    std::optional<EgressDoorRule> rule = next_rule(cutter);
    if (!rule) return {};
    rules.push_back(std::move(*rule));
  }
  if (!cutter.ended()) return {};
  return rules;
}

}  // namespace casemate
