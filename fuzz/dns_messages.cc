// Queries as a program sends them to the sandbox's resolver: what is read is a name that a list
// could hold, what is answered is an answer, and no name that is not listed has an address.

#include <algorithm>
#include <string>

#include "casemate/guest/agent/doors/dns_message.h"
#include "casemate/guest/agent/doors/door_names.h"
#include "casemate/guest/agent/doors/resolver.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using guest::DnsReading;

void check_answer(std::string_view answer, std::string_view asked) {
  require(answer.size() >= 12 && answer.substr(0, 2) == asked.substr(0, 2), "an answer has the id");
  require((answer[2] & 0x80) != 0, "an answer says that it is one");
  require(answer.size() <= 512, "an answer fits every client's buffer");
  const DnsReading again = guest::read_dns_query(answer);
  require(!again.query && !again.fault, "an answer is not answered");
}

void check_name(const std::string& name) {
  require(name.size() <= 253, "a name has at most 253 bytes");
  const bool listable = std::ranges::all_of(name, [](char each) {
    return (each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') || each == '-' ||
           each == '_' || each == '.';
  });
  require(listable, "a name has letters, digits, hyphens, underscores and dots");
  require(name.find("..") == name.npos && !name.starts_with('.') && !name.ends_with('.'),
          "no label of a name is empty");
}

}  // namespace

void fuzz_dns_messages(std::string_view bytes) {
  const DnsReading reading = guest::read_dns_query(bytes);
  require(!reading.query || !reading.fault, "a message is a query or faulty");
  if (reading.query) {
    check_name(reading.query->name);
    require(bytes.substr(12).starts_with(reading.query->question),
            "the question is repeated as it came");
  }

  guest::DoorNames names({{EgressDoorRule::Form::name, "allowed.test", {80}},
                          {EgressDoorRule::Form::suffix, "wild.test", {443}}},
                         guest::kLoopbackAddresses);
  bool listened = false;
  guest::Resolver resolver(names, [&](const std::string& name, const guest::Ipv4Bytes&) {
    require(name == "allowed.test" || name.ends_with(".wild.test"), "only listed names are given");
    return listened = true;
  });
  const auto answer = resolver.answer(bytes);
  require(answer.has_value() == (reading.query || reading.fault), "queries are answered");
  if (!answer) return;
  check_answer(*answer, bytes);
  const bool has_address = (*answer)[7] == 1;
  require(has_address == listened, "an address is one at which somebody listens");
}

}  // namespace casemate::fuzz
