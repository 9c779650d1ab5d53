#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace casemate {

// A host, in the one spelling that hosts are compared in. What list entries and requests of
// programs are read by, so that both mean the same.
struct HostName {
  enum class Form : std::uint8_t { name, ipv4, ipv6 };
  Form form = Form::name;
  // A name: lower case, no trailing dot, labels of letters, digits and inner hyphens. An address:
  // as inet_ntop writes it.
  std::string text{};
  friend bool operator==(const HostName&, const HostName&) = default;
};

// The host that `text` spells, or the rule it breaks ("it has an empty label"). ASCII only: nothing
// is mapped, so that no other character can turn into a dot or a digit after a check was made.
// Accepts a name of any case with or without a trailing dot, four decimal numbers, an IPv6 address
// without brackets and zone. Refuses the spellings of addresses that older resolvers take (parts
// left out, octal, hexadecimal, one number): they are names to one reader and addresses to another.
std::variant<HostName, std::string> parse_host_name(std::string_view text);

}  // namespace casemate
