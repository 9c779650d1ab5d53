// A proxy's client: a head ends at one place however it comes, what is read of it is canonical, and
// what is sent on is one request that any reader parts alike. And chunked bodies.

#include <algorithm>
#include <string>
#include <variant>

#include "casemate/guest/agent/doors/authority.h"
#include "casemate/guest/agent/doors/chunked_body.h"
#include "casemate/guest/agent/doors/request_head.h"
#include "casemate/guest/agent/doors/response_head.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using guest::BadRequest;
using guest::ProxyRequest;

std::optional<std::size_t> end_of(std::string_view bytes) {
  const auto found = guest::find_head_end(bytes);
  const auto* end = std::get_if<guest::HeadEnd>(&found);
  return end == nullptr ? std::nullopt : end->end;
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char each) {
    return each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
  });
  return text;
}

void check_forwarded(const ProxyRequest& request) {
  const std::string head = lower(request.forwarded_head);
  require(end_of(request.forwarded_head) == head.size(), "what is sent on is one head");
  require(count(head, "\r\nhost:") == 1, "what is sent on has one host");
  require(count(head, "\r\nconnection:") == 1, "and one end of its connection");
  const std::size_t lengths = count(head, "\r\ncontent-length:");
  const std::size_t codings = count(head, "\r\ntransfer-encoding:");
  require(lengths + codings <= 1, "and one way to find its end");
  using Form = guest::BodyLength::Form;
  require((request.body.form == Form::length) == (lengths == 1) &&
              (request.body.form == Form::chunked) == (codings == 1),
          "which is the way that was read");
  require(count(head, "\r\nproxy-connection:") + count(head, "\r\nproxy-authorization:") == 0,
          "what is between client and proxy stays there");
}

void check_head(std::string_view bytes) {
  const auto end = end_of(bytes);
  if (!end) return;
  require(*end <= guest::kMaxRequestHead, "a head is bounded");
  require(!end_of(bytes.substr(0, *end - 1)), "a head ends at one place");
  const auto read = guest::read_request_head(bytes.substr(0, *end));
  const auto* request = std::get_if<ProxyRequest>(&read);
  if (request == nullptr) return;
  const auto again = guest::parse_authority(guest::authority_text(request->host, request->port));
  require(again && again->host == request->host && again->port == request->port,
          "a host is canonical");
  if (request->tunnel) {
    require(request->forwarded_head.empty() && request->body.bytes == 0, "CONNECT has no body");
  } else {
    check_forwarded(*request);
  }
}

void check_chunks(std::string_view bytes, std::size_t piece) {
  guest::ChunkedBody whole;
  const std::size_t taken = whole.follow(bytes);
  require(taken <= bytes.size(), "no more is taken than came");
  guest::ChunkedBody cut;
  std::size_t cut_taken = 0;
  for (std::string_view rest = bytes; !rest.empty() && !cut.over() && !cut.broken();
       rest.remove_prefix(std::min(piece, rest.size()))) {
    cut_taken += cut.follow(rest.substr(0, piece));
  }
  require(cut.over() == whole.over() && cut.broken() == whole.broken() && cut_taken == taken,
          "how a body is cut into pieces changes nothing");
  if (whole.over()) require(bytes.substr(0, taken).ends_with("0\r\n\r\n"), "a body ends like one");
}

void check_response(std::string_view bytes, std::size_t piece) {
  guest::ResponseHead whole;
  whole.put(bytes);
  const std::string passed = whole.take();
  guest::ResponseHead cut;
  std::string cut_passed;
  for (std::string_view rest = bytes; !rest.empty();
       rest.remove_prefix(std::min(piece, rest.size()))) {
    cut.put(rest.substr(0, piece));
    cut_passed += cut.take();
  }
  require(cut.passed() == whole.passed() && cut_passed == passed,
          "how an answer is cut into pieces changes nothing");
}

}  // namespace

void fuzz_request_heads(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = 1 + input.byte();
  check_head(input.rest());
  check_chunks(input.rest(), piece);
  check_response(input.rest(), piece);
}

}  // namespace casemate::fuzz
