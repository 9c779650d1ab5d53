#include "casemate/core/egress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using Form = EgressDoorRule::Form;

std::vector<HostPattern> entries(std::initializer_list<const char*> texts) {
  std::vector<HostPattern> parsed;
  for (const char* text : texts) parsed.push_back(HostPattern::parse(text));
  return parsed;
}

TEST(EgressDoorRules, EntriesOfOneHostArePutTogether) {
  const std::vector<EgressDoorRule> expected{
      {Form::name, "a.test", {80, 443, 5432}},
      {Form::suffix, "a.test", {8443}},
      {Form::ipv4, "192.0.2.7", {80, 443}},
      {Form::ipv6, "2001:db8::7", {22}},
  };
  EXPECT_EQ(door_rules(entries({"a.test", "192.0.2.7", "A.test.:5432", "a.test:80", "*.a.test:8443",
                                "[2001:db8::7]:22"})),
            expected);
  EXPECT_TRUE(door_rules({}).empty());
}

TEST(EgressDoorRules, AreBounded) {
  std::vector<HostPattern> ports;
  for (int port = 1; port <= 64; ++port) {
    ports.push_back(HostPattern::parse(fmt::format("a.test:{}", port)));
  }
  EXPECT_EQ(door_rules(ports).at(0).ports.size(), kMaxDoorPorts);
  ports.push_back(HostPattern::parse("a.test:65"));
  expect_refusal<InvalidArgument>([&] { door_rules(ports); }, {"65 ports", "at most 64"});

  std::vector<HostPattern> hosts;
  for (int host = 0; host < 1024; ++host) {
    hosts.push_back(HostPattern::parse(fmt::format("h{}.test", host)));
  }
  EXPECT_EQ(door_rules(hosts).size(), kMaxDoorRules);
  hosts.push_back(HostPattern::parse("one-more.test"));
  expect_refusal<InvalidArgument>([&] { door_rules(hosts); }, {"1025 hosts", "at most 1024"});
}

}  // namespace
}  // namespace casemate
