#include "casemate/egress/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "casemate/base/utf8.h"
#include "casemate/core/egress.h"

namespace casemate {
namespace {

bool covers_host(const HostPattern& entry, const HostName& host) {
  switch (entry.form()) {
    case HostPattern::Form::name:
      return host.form == HostName::Form::name && entry.host() == host.text;
    case HostPattern::Form::suffix:
      return host.form == HostName::Form::name && host.text.size() > entry.host().size() + 1 &&
             host.text.ends_with("." + entry.host());
    case HostPattern::Form::address:
      return host.form != HostName::Form::name && entry.host() == host.text;
  }
  return false;
}

bool covers_port(const HostPattern& entry, std::uint16_t port) {
  return entry.port() ? *entry.port() == port : port == kHttpPort || port == kHttpsPort;
}

std::string shown(const HostName& host, std::uint16_t port) {
  return host.form == HostName::Form::ipv6 ? fmt::format("[{}]:{}", host.text, port)
                                           : fmt::format("{}:{}", host.text, port);
}

}  // namespace

std::string policy_sentence(std::string_view what) {
  return fmt::format(
      "{} This is the sandbox's policy and no fault: trying again or another way leads nowhere.",
      what);
}

EgressVerdict decide(const std::vector<HostPattern>& allow, const EgressRequest& request) {
  EgressVerdict verdict;
  auto parsed = parse_host_name(request.host);
  if (const auto* fault = std::get_if<std::string>(&parsed)) {
    verdict.reason = "malformed host: " + *fault;
    verdict.sentence = "The host that was asked for is malformed: " + *fault + ".";
    return verdict;
  }
  if (request.port == 0) {
    verdict.reason = "malformed: there is no port 0";
    verdict.sentence = "There is no port 0.";
    return verdict;
  }
  verdict.host = std::get<HostName>(std::move(parsed));
  verdict.port = request.port;
  const auto of_host = [&](const HostPattern& entry) { return covers_host(entry, verdict.host); };
  const auto found = std::ranges::find_if(allow, [&](const HostPattern& entry) {
    return of_host(entry) && covers_port(entry, request.port);
  });
  if (found != allow.end()) {
    verdict.code = EgressCode::opened;
    verdict.entry = found->text();
    return verdict;
  }
  verdict.code = EgressCode::not_on_list;
  const bool wrong_port = std::ranges::any_of(allow, of_host);
  verdict.reason = wrong_port ? "port not on the list" : "not on the list";
  verdict.sentence = policy_sentence(fmt::format(
      "{} is not among the hosts that this program may reach{}.", shown(verdict.host, verdict.port),
      wrong_port ? ", though other ports of it are" : ""));
  return verdict;
}

AddressVerdict check_addresses(const std::vector<IpAddress>& resolved) {
  AddressVerdict verdict;
  const IpAddress* refused = nullptr;
  for (const IpAddress& address : resolved) {
    if (classify(address) == AddressClass::public_internet) {
      verdict.permitted.push_back(address);
    } else {
      refused = &address;
    }
  }
  if (verdict.permitted.empty()) {
    verdict.reason = refused == nullptr ? "the name has no address"
                                        : fmt::format("the name leads to {} ({})", refused->text(),
                                                      to_string(classify(*refused)));
  }
  return verdict;
}

}  // namespace casemate
