#include "casemate/guest/agent/doors/resolver.h"

namespace casemate::guest {

std::optional<std::string> Resolver::answer(std::string_view message) {
  const DnsReading reading = read_dns_query(message);
  if (reading.query) return answer(*reading.query);
  if (reading.fault) return encode_dns_fault(reading.id, *reading.fault);
  return std::nullopt;
}

std::string Resolver::answer(const DnsQuery& query) {
  const bool of_internet = query.kind == kDnsClassInternet || query.kind == kDnsClassAny;
  if (!of_internet || names_.ports_of(query.name).empty()) {
    if (unknown_ && !query.name.empty()) unknown_(query.name);
    return encode_dns_answer(query, DnsCode::no_such_name, std::nullopt,
                             "not on the egress list of this sandbox (policy)");
  }
  // Everything else that could be asked of a listed name it does not have.
  if (query.type != kDnsTypeA && query.type != kDnsTypeAny) {
    return encode_dns_answer(query, DnsCode::no_error);
  }
  const std::optional<Ipv4Bytes> address = names_.give(query.name);
  if (!address) {
    return encode_dns_answer(query, DnsCode::server_failure, std::nullopt,
                             "this sandbox has no more addresses for names; use its proxy");
  }
  if (!listen_(query.name, *address)) {
    return encode_dns_answer(
        query, DnsCode::server_failure, std::nullopt,
        "a program of this sandbox listens at the ports of it, or at too many");
  }
  return encode_dns_answer(query, DnsCode::no_error, *address);
}

}  // namespace casemate::guest
