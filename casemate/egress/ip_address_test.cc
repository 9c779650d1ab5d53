#include "casemate/egress/ip_address.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace casemate {
namespace {

using Class = AddressClass;

Class class_of(const std::string& text) {
  const auto address = IpAddress::parse(text);
  EXPECT_TRUE(address) << text;
  return address ? classify(*address) : Class::public_internet;
}

struct Example {
  const char* address;
  Class expected;
};

// The first and the last address of each range, and their neighbours outside.
constexpr Example kIpv4Examples[] = {
    {"0.0.0.0", Class::unspecified},
    {"0.255.255.255", Class::unspecified},
    {"1.0.0.0", Class::public_internet},
    {"9.255.255.255", Class::public_internet},
    {"10.0.0.0", Class::private_network},
    {"10.255.255.255", Class::private_network},
    {"11.0.0.0", Class::public_internet},
    {"100.63.255.255", Class::public_internet},
    {"100.64.0.0", Class::carrier_nat},
    {"100.100.100.200", Class::metadata_service},
    {"100.127.255.255", Class::carrier_nat},
    {"100.128.0.0", Class::public_internet},
    {"126.255.255.255", Class::public_internet},
    {"127.0.0.0", Class::loopback},
    {"127.255.255.255", Class::loopback},
    {"128.0.0.0", Class::public_internet},
    {"168.63.129.16", Class::metadata_service},
    {"168.63.129.17", Class::public_internet},
    {"169.253.255.255", Class::public_internet},
    {"169.254.0.0", Class::link_local},
    {"169.254.169.254", Class::metadata_service},
    {"169.254.255.255", Class::link_local},
    {"169.255.0.0", Class::public_internet},
    {"172.15.255.255", Class::public_internet},
    {"172.16.0.0", Class::private_network},
    {"172.31.255.255", Class::private_network},
    {"172.32.0.0", Class::public_internet},
    {"192.0.0.0", Class::reserved},
    {"192.0.0.192", Class::metadata_service},
    {"192.0.0.255", Class::reserved},
    {"192.0.1.0", Class::public_internet},
    {"192.0.2.7", Class::public_internet},
    {"192.88.99.1", Class::reserved},
    {"192.167.255.255", Class::public_internet},
    {"192.168.0.0", Class::private_network},
    {"192.168.255.255", Class::private_network},
    {"192.169.0.0", Class::public_internet},
    {"198.17.255.255", Class::public_internet},
    {"198.18.0.0", Class::reserved},
    {"198.19.255.255", Class::reserved},
    {"198.20.0.0", Class::public_internet},
    {"203.0.113.7", Class::public_internet},
    {"223.255.255.255", Class::public_internet},
    {"224.0.0.0", Class::multicast},
    {"239.255.255.255", Class::multicast},
    {"240.0.0.0", Class::reserved},
    {"255.255.255.255", Class::reserved},
};

constexpr Example kIpv6Examples[] = {
    {"::", Class::unspecified},
    {"::1", Class::loopback},
    {"::2", Class::unspecified},  // IPv4-compatible 0.0.0.2
    {"64:ff9b:1::7f00:1", Class::reserved},
    {"100::1", Class::reserved},
    {"1fff:ffff::", Class::reserved},
    {"2001::1", Class::teredo},
    {"2001:0:ffff::1", Class::teredo},
    {"2001:2::1", Class::reserved},
    {"2001:10::1", Class::reserved},
    {"2001:1ff:ffff::", Class::reserved},
    {"2001:200::", Class::public_internet},
    {"2001:db8::7", Class::public_internet},
    {"2606:4700::1111", Class::public_internet},
    {"3fff:ffff::", Class::public_internet},
    {"4000::", Class::reserved},
    {"5f00::1", Class::reserved},
    {"fbff::", Class::reserved},
    {"fc00::", Class::private_network},
    {"fd00:ec2::254", Class::metadata_service},
    {"fd20:ce::254", Class::metadata_service},
    {"fdff:ffff::", Class::private_network},
    {"fe00::", Class::reserved},
    {"fe80::1", Class::link_local},
    {"febf:ffff::", Class::link_local},
    {"fec0::1", Class::private_network},
    {"feff:ffff::", Class::private_network},
    {"ff02::1", Class::multicast},
    {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::multicast},
};

TEST(AddressClass, OfEachRangeAndItsNeighbours) {
  for (const Example& example : kIpv4Examples) {
    EXPECT_EQ(class_of(example.address), example.expected) << example.address;
  }
  for (const Example& example : kIpv6Examples) {
    EXPECT_EQ(class_of(example.address), example.expected) << example.address;
  }
}

// EG-14
TEST(AddressClass, OfAnIpv6AddressIsThatOfTheIpv4AddressItHolds) {
  EXPECT_EQ(class_of("::ffff:127.0.0.1"), Class::loopback);
  EXPECT_EQ(class_of("::ffff:7f00:1"), Class::loopback);
  EXPECT_EQ(class_of("::127.0.0.1"), Class::loopback);
  EXPECT_EQ(class_of("64:ff9b::7f00:1"), Class::loopback);
  EXPECT_EQ(class_of("2002:7f00:1::"), Class::loopback);
  EXPECT_EQ(class_of("2001:db8::5efe:7f00:1"), Class::loopback);
  EXPECT_EQ(class_of("2001:db8::200:5efe:7f00:1"), Class::loopback);
  EXPECT_EQ(class_of("fe80::5efe:cb00:7107"), Class::link_local)
      << "a public one inside opens none";
  EXPECT_EQ(class_of("::cb00:7107"), Class::reserved) << "IPv4-compatible, routed nowhere";
  EXPECT_EQ(class_of("64:ff9b::cb00:7107"), Class::public_internet) << "NAT64 to a public one";
  for (const Example& example : kIpv4Examples) {
    for (const char* form : {"::ffff:{}", "64:ff9b::{}"}) {
      const std::string text = fmt::format(fmt::runtime(form), example.address);
      EXPECT_EQ(class_of(text), example.expected) << text;
    }
  }
}

TEST(AddressClass, IsNotPublicForOddTexts) {
  for (const char* text :
       {"", "127.1", "0x7f.0.0.1", "017700000001", "fe80::1%eth0", "[::1]", "a"}) {
    EXPECT_FALSE(IpAddress::parse(text)) << text;
  }
  EXPECT_FALSE(IpAddress::parse(std::string("1.2.3.4\0", 8)));
}

IpAddress of_bytes(IpAddress::Family family, const std::vector<std::uint8_t>& bytes) {
  IpAddress address;
  address.family = family;
  std::copy(bytes.begin(), bytes.end(), address.bytes.begin());
  return address;
}

RC_GTEST_PROP(AddressClass, EveryAddressReadsBackAndHasOne, ()) {
  const bool ipv4 = *rc::gen::arbitrary<bool>();
  const auto bytes = *rc::gen::container<std::vector<std::uint8_t>>(
      ipv4 ? 4 : 16, rc::gen::oneOf(rc::gen::arbitrary<std::uint8_t>(),
                                    rc::gen::element<std::uint8_t>(0, 0x20, 0x01, 0x7f, 0xff)));
  const IpAddress address =
      of_bytes(ipv4 ? IpAddress::Family::ipv4 : IpAddress::Family::ipv6, bytes);
  RC_ASSERT(IpAddress::parse(address.text()) == address);
  RC_ASSERT(!to_string(classify(address)).empty());
}

// Whatever stands around it, an address of this machine or its network is none to lead a name to.
RC_GTEST_PROP(AddressClass, NoFormOfAnInternalIpv4AddressIsPublic, ()) {
  const auto inner = *rc::gen::element<std::string>("127.0.0.1", "10.1.2.3", "169.254.169.254",
                                                    "192.168.0.9", "0.0.0.0", "100.64.1.1");
  const auto form = *rc::gen::element<std::string>("{}", "::ffff:{}", "::{}", "64:ff9b::{}",
                                                   "2001:db8::5efe:{}", "fe80::5efe:{}");
  RC_ASSERT(class_of(fmt::format(fmt::runtime(form), inner)) != Class::public_internet);
}

}  // namespace
}  // namespace casemate
