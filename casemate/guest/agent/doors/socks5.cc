#include "casemate/guest/agent/doors/socks5.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <optional>

#include "casemate/guest/agent/doors/authority.h"

namespace casemate::guest {
namespace {

constexpr unsigned char kVersion = 5;
constexpr char kWithoutSignOn = 0;
constexpr char kNoMethod = '\xff';

unsigned char at(std::string_view bytes, std::size_t index) {
  return static_cast<unsigned char>(bytes[index]);
}

std::string address_text(int family, std::string_view bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (inet_ntop(family, bytes.data(), text.data(), text.size()) == nullptr) return {};
  return text.data();
}

}  // namespace

SocksGreeting read_socks_greeting(std::string_view bytes) {
  SocksGreeting greeting;
  if (!bytes.empty() && at(bytes, 0) != kVersion) greeting.reading = SocksReading::malformed;
  if (bytes.size() < 2 || greeting.reading == SocksReading::malformed) return greeting;
  const std::size_t methods = at(bytes, 1);
  if (methods == 0) {
    greeting.reading = SocksReading::malformed;
    return greeting;
  }
  if (bytes.size() < 2 + methods) return greeting;
  greeting.reading = SocksReading::whole;
  greeting.size = 2 + methods;
  greeting.goes_without = bytes.substr(2, methods).find(kWithoutSignOn) != std::string_view::npos;
  return greeting;
}

SocksRequest read_socks_request(std::string_view bytes) {
  constexpr std::size_t kFixed = 4;
  SocksRequest request;
  const auto malformed = [&](SocksReply fault) {
    request.reading = SocksReading::malformed;
    request.fault = fault;
    return request;
  };
  if (!bytes.empty() && at(bytes, 0) != kVersion) return malformed(SocksReply::failed);
  if (bytes.size() > 2 && bytes[2] != 0) return malformed(SocksReply::failed);
  if (bytes.size() <= kFixed) return request;
  std::size_t start = kFixed;
  std::size_t length = 0;
  const unsigned char form = at(bytes, 3);
  switch (form) {
    case 1:
      length = sizeof(in_addr);
      break;
    case 3:
      length = at(bytes, kFixed);
      ++start;
      if (length == 0) return malformed(SocksReply::failed);
      break;
    case 4:
      length = sizeof(in6_addr);
      break;
    default:
      return malformed(SocksReply::address_not_supported);
  }
  const std::size_t size = start + length + 2;
  if (bytes.size() < size) return request;
  request.reading = SocksReading::whole;
  request.size = size;
  const unsigned char command = at(bytes, 1);
  if (command >= 1 && command <= 3) request.command = static_cast<SocksCommand>(command);
  const std::string_view address = bytes.substr(start, length);
  if (form == 1) {
    request.host = address_text(AF_INET, address);
  } else if (form == 4) {
    request.host = address_text(AF_INET6, address);
  } else if (const auto name = parse_host(address)) {
    request.host = *name;
  }
  request.port = static_cast<std::uint16_t>(at(bytes, size - 2) << 8 | at(bytes, size - 1));
  return request;
}

std::string encode_socks_choice(bool goes_without) {
  return {static_cast<char>(kVersion), goes_without ? kWithoutSignOn : kNoMethod};
}

std::string encode_socks_reply(SocksReply reply) {
  // The address it was reached from is the host's business: 0.0.0.0:0.
  std::string bytes{static_cast<char>(kVersion), static_cast<char>(reply), 0, 1};
  bytes.append(6, '\0');
  return bytes;
}

}  // namespace casemate::guest
