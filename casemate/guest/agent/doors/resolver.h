#pragma once

// The sandbox's resolver: names of the list have an address, which a door listens at; no other name
// is known, and nobody is asked.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/guest/agent/doors/dns_message.h"
#include "casemate/guest/agent/doors/door_names.h"

namespace casemate::guest {

class Resolver {
 public:
  // Makes the listeners at a name's address that are not there yet; false when there is none.
  using Listen = std::function<bool(const std::string& name, const Ipv4Bytes& address)>;

  // Told of a name that was asked for and is not known.
  using Unknown = std::function<void(const std::string& name)>;

  Resolver(DoorNames& names, Listen listen, Unknown unknown = {})
      : names_(names), listen_(std::move(listen)), unknown_(std::move(unknown)) {}

  // The answer to one query; none for what must not be answered.
  std::optional<std::string> answer(std::string_view message);

 private:
  std::string answer(const DnsQuery& query);

  DoorNames& names_;
  Listen listen_;
  Unknown unknown_;
};

}  // namespace casemate::guest
