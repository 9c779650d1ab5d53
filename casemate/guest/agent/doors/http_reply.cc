#include "casemate/guest/agent/doors/http_reply.h"

namespace casemate::guest {
namespace {

// In the status line, because of a CONNECT that failed most clients show nothing else.
std::string_view phrase(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden by the policy of this sandbox";
    case 503:
      return "Too Many Connections";
    case 504:
      return "Gateway Timeout";
    default:
      return "Bad Gateway";
  }
}

std::string reply(int status, std::string_view text) {
  std::string body(text);
  body += '\n';
  std::string head = "HTTP/1.1 " + std::to_string(status) + " ";
  head += phrase(status);
  head += "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: " +
          std::to_string(body.size()) + "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
  return head + body;
}

}  // namespace

std::string http_refusal(const EgressAnswer& answer) {
  return reply(http_status(answer.code), answer.sentence);
}

std::string http_bad_request(std::string_view why) {
  return reply(400, "This request to the sandbox's proxy is malformed: " + std::string(why) + ".");
}

std::string http_bad_gateway(std::string_view why) { return reply(502, why); }

std::string_view http_connected() { return "HTTP/1.1 200 Connection established\r\n\r\n"; }

}  // namespace casemate::guest
