#include "casemate/core/address_text.h"

#include <arpa/inet.h>

#include <array>

namespace casemate {

std::optional<std::string> canonical_address(int family, std::string_view text) {
  // A C string would end at the first one, and be another host.
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  std::array<char, INET6_ADDRSTRLEN> canonical{};
  if (inet_pton(family, std::string(text).c_str(), bytes.data()) != 1 ||
      inet_ntop(family, bytes.data(), canonical.data(), canonical.size()) == nullptr) {
    return std::nullopt;
  }
  return std::string(canonical.data());
}

}  // namespace casemate
