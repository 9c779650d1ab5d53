#include "casemate/backends/docker/engine_address.h"

#include <fmt/format.h>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::docker {
namespace {

// sockaddr_un holds so many, with the NUL.
constexpr std::size_t kMaxSocketPath = 107;
constexpr std::string_view kTlsPort = "2376";

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw InvalidArgument(
      fmt::format("the engine address \"{}\" is refused: {}", escape_for_display(text), why),
      "give unix:///run/docker.sock or tcp://host:2376");
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

EngineAddress parse_engine_address(std::string_view text) {
  EngineAddress address;
  address.text = text;
  if (text.find('\0') != std::string_view::npos) refuse(text, "it holds a NUL byte");
  if (text.starts_with("unix://")) text.remove_prefix(7);
  if (text.starts_with('/')) {
    if (text.size() > kMaxSocketPath) refuse(text, "a socket's path has at most 107 bytes");
    address.path = text;
    return address;
  }
  if (!text.starts_with("tcp://")) refuse(address.text, "it is neither unix:// nor tcp://");
  text.remove_prefix(6);
  address.kind = EngineAddress::Kind::tcp;
  std::string_view host = text;
  std::string_view port = kTlsPort;
  const std::size_t colon = text.rfind(':');
  const std::size_t bracket = text.rfind(']');
  if (colon != text.npos && (bracket == text.npos || colon > bracket)) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    host.remove_prefix(1);
    host.remove_suffix(1);
  } else if (host.find(':') != host.npos) {
    refuse(address.text, "an IPv6 address stands in brackets");
  }
  if (host.empty() || host.find_first_of("/?#@ ") != host.npos) refuse(address.text, "no host");
  if (!is_port(port)) refuse(address.text, "the port is no number");
  address.host = host;
  address.port = port;
  return address;
}

}  // namespace casemate::docker
