#pragma once

// The few messages of DNS (RFC 1035, EDNS of RFC 6891) that the sandbox's resolver speaks: one
// question in, an address, nothing or a refusal out. Pure; no bound of a question is believed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace casemate::guest {

// Longest query that is read; a question with EDNS has far less than 512.
inline constexpr std::size_t kMaxDnsQuery = 4096;

enum class DnsCode : std::uint8_t {
  no_error = 0,
  format_error = 1,
  server_failure = 2,
  // For what is not on the list too. "Refused" would say it better, but resolvers take that for the
  // server's trouble: musl's waits until its time is over, glibc's calls it temporary.
  no_such_name = 3,
  not_implemented = 4,
};

struct DnsQuery {
  std::uint16_t id = 0;
  bool recursion_desired = false;
  // Whether it came with an OPT record, so that the answer has one.
  bool edns = false;
  // As it came, to be repeated; its name, type and class.
  std::string question;
  // Lower case, without the trailing dot. Empty for the root, and for a name that no allowlist can
  // hold (a label with other bytes than letters, digits, '-' and '_').
  std::string name;
  std::uint16_t type = 0;
  std::uint16_t kind = 0;  // its class
};

inline constexpr std::uint16_t kDnsTypeA = 1;
inline constexpr std::uint16_t kDnsTypeAny = 255;
inline constexpr std::uint16_t kDnsClassInternet = 1;
inline constexpr std::uint16_t kDnsClassAny = 255;

// What came: a query, or why there is none. Without either it is to be dropped: no header, or
// itself an answer, to which no answer may go.
struct DnsReading {
  std::optional<DnsQuery> query;
  // With `id`, for `encode_dns_fault`.
  std::optional<DnsCode> fault;
  std::uint16_t id = 0;
};

DnsReading read_dns_query(std::string_view message);

using Ipv4Bytes = std::array<std::uint8_t, 4>;

// The answer with that address, or with none. `remark` goes with an EDNS answer as the text of an
// extended error (RFC 8914, "prohibited"); at most 100 bytes of it.
std::string encode_dns_answer(const DnsQuery& query, DnsCode code,
                              const std::optional<Ipv4Bytes>& address = std::nullopt,
                              std::string_view remark = {});

// An answer to what could not be read.
std::string encode_dns_fault(std::uint16_t id, DnsCode code);

}  // namespace casemate::guest
