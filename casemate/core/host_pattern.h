#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace casemate {

// One entry of an egress allowlist: an exact name, `*.suffix` (one or more labels below the
// suffix, never the suffix itself), or an IP literal, each optionally with a port.
//
// Only `parse` makes one, so an invalid entry cannot exist. The value is canonical: lower case, no
// trailing dot, international names in their xn-- form, IPv6 compressed. It decides nothing by
// itself (egress/decision.h).
class HostPattern {
 public:
  enum class Form : std::uint8_t { name, suffix, address };

  // Accepts `host`, `*.suffix`, `192.0.2.7`, `[2001:db8::7]`, each with an optional `:port`
  // (1..65535). Throws `InvalidArgument` that names the entry and the rule: blank, white space or
  // comma, scheme or path, an empty or over-long label (63) or name (253), characters outside
  // letters, digits and inner hyphens that IDNA does not map to these, `*` elsewhere than as the
  // whole first label, a suffix of one label or a public one (`*.com`, `*.co.uk`), a top-level
  // domain, `localhost` (no name leads to loopback), a malformed or ranged address, an address at
  // which no TCP server can be (multicast, broadcast, IPv6 link-local, which needs a zone), an IPv4
  // address in the form of IPv6 (`[::ffff:192.0.2.7]`), and the place of a sandbox's own resolver
  // (`127.0.0.1:53`, `[::1]:53`).
  static HostPattern parse(std::string_view entry);

  Form form() const noexcept { return form_; }
  // The name, the suffix without `*.`, or the address, canonical.
  const std::string& host() const noexcept { return host_; }
  // Absent means ports 80 and 443.
  std::optional<std::uint16_t> port() const noexcept { return port_; }
  // The canonical entry; `parse(p.text()) == p`.
  std::string text() const;

  friend bool operator==(const HostPattern&, const HostPattern&) = default;

 private:
  HostPattern(Form form, std::string host, std::optional<std::uint16_t> port);

  Form form_;
  std::string host_;
  std::optional<std::uint16_t> port_;
};

}  // namespace casemate
