#include "casemate/guest/agent/doors/door_names.h"

#include <utility>

namespace casemate::guest {
namespace {

Ipv4Bytes nth(const AddressRange& range, std::uint32_t number) {
  std::uint32_t value = 0;
  for (const std::uint8_t byte : range.first) value = value << 8 | byte;
  value += number;
  return {static_cast<std::uint8_t>(value >> 24), static_cast<std::uint8_t>(value >> 16 & 0xff),
          static_cast<std::uint8_t>(value >> 8 & 0xff), static_cast<std::uint8_t>(value & 0xff)};
}

}  // namespace

std::string address_text(const Ipv4Bytes& address) {
  std::string text;
  for (const std::uint8_t byte : address) {
    if (!text.empty()) text += '.';
    text += std::to_string(byte);
  }
  return text;
}

DoorNames::DoorNames(std::vector<EgressDoorRule> rules, AddressRange range) : range_(range) {
  for (EgressDoorRule& rule : rules) {
    if (rule.form == EgressDoorRule::Form::suffix) {
      rule.host = "." + rule.host;
      suffixes_.push_back(std::move(rule));
      continue;
    }
    exact_[rule.host].insert(rule.ports.begin(), rule.ports.end());
    if (rule.form != EgressDoorRule::Form::name) literals_.push_back(std::move(rule));
  }
}

std::set<std::uint16_t> DoorNames::ports_of(std::string_view host) const {
  std::set<std::uint16_t> ports;
  if (const auto found = exact_.find(host); found != exact_.end()) ports = found->second;
  for (const EgressDoorRule& rule : suffixes_) {
    if (host.size() > rule.host.size() && host.ends_with(rule.host)) {
      ports.insert(rule.ports.begin(), rule.ports.end());
    }
  }
  return ports;
}

std::vector<EgressDoorRule> DoorNames::literals() const { return literals_; }

std::optional<Ipv4Bytes> DoorNames::give(const std::string& name) {
  if (const auto found = given_.find(name); found != given_.end()) {
    return found->second;
  }
  if (given_.size() >= kMaxNamesGiven) return std::nullopt;
  while (next_ < range_.count) {
    const Ipv4Bytes address = nth(range_, next_++);
    if (exact_.contains(address_text(address))) continue;  // somebody's own, and on the list
    given_.emplace(name, address);
    return address;
  }
  return std::nullopt;
}

}  // namespace casemate::guest
