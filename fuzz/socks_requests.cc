// A SOCKS5 client's greeting and request: cut anywhere they are the same, and a host is one that
// could be dialled, or none.

#include <string>

#include "casemate/guest/agent/doors/authority.h"
#include "casemate/guest/agent/doors/socks5.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using guest::SocksReading;

template <typename Read>
void check_cuts(std::string_view bytes, Read read) {
  const auto whole = read(bytes);
  require(whole.size <= bytes.size(), "no more is taken than came");
  if (whole.reading != SocksReading::whole) return;
  for (std::size_t size = 0; size < whole.size; ++size) {
    require(read(bytes.substr(0, size)).reading == SocksReading::needs_more,
            "what is not whole yet is waited for");
  }
  require(read(bytes.substr(0, whole.size)).size == whole.size, "what follows changes nothing");
}

}  // namespace

void fuzz_socks_requests(std::string_view bytes) {
  check_cuts(bytes, guest::read_socks_greeting);
  check_cuts(bytes, guest::read_socks_request);
  const auto greeting = guest::read_socks_greeting(bytes);
  require(greeting.size <= 257, "a greeting is bounded");
  require(greeting.reading != SocksReading::needs_more || bytes.size() < 257,
          "a greeting is not waited for without end");
  const auto request = guest::read_socks_request(bytes);
  require(request.size <= 262, "a request is bounded");
  require(request.reading != SocksReading::needs_more || bytes.size() < 262,
          "a request is not waited for without end");
  if (request.reading != SocksReading::whole || request.host.empty() || request.port == 0) return;
  const auto again = guest::parse_authority(guest::authority_text(request.host, request.port));
  require(again && again->host == request.host && again->port == request.port,
          "a host is canonical");
}

}  // namespace casemate::fuzz
