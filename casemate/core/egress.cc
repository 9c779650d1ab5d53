#include "casemate/core/egress.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "casemate/core/errors.h"

namespace casemate {
namespace {

EgressDoorRule::Form form_of(const HostPattern& entry) {
  switch (entry.form()) {
    case HostPattern::Form::name:
      return EgressDoorRule::Form::name;
    case HostPattern::Form::suffix:
      return EgressDoorRule::Form::suffix;
    case HostPattern::Form::address:
      break;
  }
  return entry.host().find(':') == std::string::npos ? EgressDoorRule::Form::ipv4
                                                     : EgressDoorRule::Form::ipv6;
}

}  // namespace

std::string_view to_string(EgressDecision decision) {
  return decision == EgressDecision::allowed ? "allowed" : "denied";
}

std::vector<EgressDoorRule> door_rules(const std::vector<HostPattern>& allow) {
  std::map<std::pair<EgressDoorRule::Form, std::string>, std::set<std::uint16_t>> ports;
  for (const HostPattern& entry : allow) {
    auto& of_host = ports[{form_of(entry), entry.host()}];
    if (entry.port()) {
      of_host.insert(*entry.port());
    } else {
      of_host.insert({kHttpPort, kHttpsPort});
    }
    if (of_host.size() > kMaxDoorPorts) {
      throw InvalidArgument(
          fmt::format("the egress list has {} ports of {}; at most {} are accepted", of_host.size(),
                      entry.host(), kMaxDoorPorts),
          "list fewer ports");
    }
  }
  if (ports.size() > kMaxDoorRules) {
    throw InvalidArgument(fmt::format("the egress list has {} hosts; at most {} are accepted",
                                      ports.size(), kMaxDoorRules),
                          "list fewer hosts, or cover several by *.suffix");
  }
  std::vector<EgressDoorRule> rules;
  for (const auto& [host, of_host] : ports) {
    rules.push_back({host.first, host.second, {of_host.begin(), of_host.end()}});
  }
  return rules;
}

}  // namespace casemate
