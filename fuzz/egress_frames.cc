// What a program writes on its egress socket, what the host answers, and the list that doors are
// told: each has one spelling; and a request is decided, whatever its host spells.

#include <string>

#include "casemate/base/utf8.h"
#include "casemate/core/egress_frame.h"
#include "casemate/egress/decision.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

const std::vector<HostPattern>& allow() {
  static const std::vector<HostPattern> list{
      HostPattern::parse("allowed.test"), HostPattern::parse("*.below.test:8443"),
      HostPattern::parse("127.0.0.1"), HostPattern::parse("[2001:db8::7]")};
  return list;
}

// By another way than the code's: by what may be reached, listed.
bool may_be_reached(const HostName& host, std::uint16_t port) {
  const bool web = port == 80 || port == 443;
  if (host.text == "allowed.test" || host.text == "127.0.0.1" || host.text == "2001:db8::7") {
    return web;
  }
  return port == 8443 && host.form == HostName::Form::name && host.text.ends_with(".below.test") &&
         !host.text.starts_with('.');
}

void check_decision(const EgressRequest& request) {
  const EgressVerdict verdict = decide(allow(), request);
  require(is_valid_utf8(verdict.sentence) && is_valid_utf8(verdict.reason), "it is said in UTF-8");
  const EgressAnswer answer{verdict.code, verdict.sentence};
  const std::string frame = encode_egress(answer);
  require(decode_egress_answer(std::string_view(frame).substr(kEgressLengthBytes)) == answer,
          "every answer can be sent");
  if (verdict.code == EgressCode::malformed) return;
  require((verdict.code == EgressCode::opened) == may_be_reached(verdict.host, request.port),
          "what is opened is what the list says");
  EgressRequest again = request;
  again.host = verdict.host.text;
  require(decide(allow(), again).code == verdict.code, "the canonical host is decided alike");
  require(request.host.find('\0') == std::string::npos, "no host has a NUL");
}

}  // namespace

void fuzz_egress_frames(std::string_view bytes) {
  Input input(bytes);
  const unsigned kind = input.byte() % 3;
  const std::string_view body = input.rest();
  if (kind == 0) {
    const auto request = decode_egress_request(body);
    if (!request) return;
    require(std::string_view(encode_egress(*request)).substr(kEgressLengthBytes) == body,
            "a request has one spelling");
    check_decision(*request);
  } else if (kind == 1) {
    const auto answer = decode_egress_answer(body);
    if (!answer) return;
    require(std::string_view(encode_egress(*answer)).substr(kEgressLengthBytes) == body,
            "an answer has one spelling");
    const int status = http_status(answer->code);
    require(status == 200 || (status >= 400 && status < 600), "an answer has a status of HTTP");
  } else if (const auto rules = decode_door_rules(body)) {
    require(encode_door_rules(*rules) == body, "a list has one spelling");
    require(rules->size() <= kMaxDoorRules, "a list is bounded");
  }
}

}  // namespace casemate::fuzz
