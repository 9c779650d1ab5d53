#include "casemate/guest/agent/doors/socks5.h"

#include <gtest/gtest.h>

#include <string>

using namespace std::string_literals;

namespace casemate::guest {
namespace {

TEST(Socks, GreetingIsWholeWithAllItsMethods) {
  EXPECT_EQ(read_socks_greeting("\x05").reading, SocksReading::needs_more);
  EXPECT_EQ(read_socks_greeting("\x05\x02\x01").reading, SocksReading::needs_more);
  const SocksGreeting greeting = read_socks_greeting("\x05\x02\x02\x00rest"s);
  EXPECT_EQ(greeting.reading, SocksReading::whole);
  EXPECT_EQ(greeting.size, 4U);
  EXPECT_TRUE(greeting.goes_without);
  EXPECT_FALSE(read_socks_greeting("\x05\x01\x02").goes_without);
}

TEST(Socks, GreetingOfAnotherVersionOrWithoutMethodsIsMalformed) {
  EXPECT_EQ(read_socks_greeting("\x04").reading, SocksReading::malformed);
  EXPECT_EQ(read_socks_greeting("\x05\x00"s).reading, SocksReading::malformed);
}

std::string request(std::string_view host, char command = 1) {
  return "\x05"s + command + "\0\x03"s + static_cast<char>(host.size()) + std::string(host) +
         "\x01\xbb"s;
}

TEST(Socks, RequestNamesAHost) {
  const std::string bytes = request("Allowed.Test.");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(read_socks_request(bytes.substr(0, size)).reading, SocksReading::needs_more) << size;
  }
  const SocksRequest read = read_socks_request(bytes + "more");
  EXPECT_EQ(read.reading, SocksReading::whole);
  EXPECT_EQ(read.size, bytes.size());
  EXPECT_EQ(read.command, SocksCommand::connect);
  EXPECT_EQ(read.host, "allowed.test");
  EXPECT_EQ(read.port, 443);
}

TEST(Socks, RequestNamesAnAddress) {
  const SocksRequest v4 = read_socks_request("\x05\x01\0\x01\xc0\0\x02\x07\0\x50"s);
  EXPECT_EQ(v4.host, "192.0.2.7");
  EXPECT_EQ(v4.port, 80);
  const std::string zeros(11, '\0');
  const SocksRequest v6 =
      read_socks_request("\x05\x01\0\x04\x20\x01\x0d\xb8"s + zeros + "\x07\0\x50"s);
  EXPECT_EQ(v6.host, "2001:db8::7");
}

// The NUL of the name that a C string ends at.
TEST(Socks, NameWithANulOrBeyondAsciiIsNone) {
  EXPECT_EQ(read_socks_request(request("denied.test\0.allowed.test"s)).host, "");
  EXPECT_EQ(read_socks_request(request("allowed\xef\xbc\x8etest")).host, "");
  EXPECT_EQ(read_socks_request(request("a b")).host, "");
}

TEST(Socks, BindAndUdpAreTold) {
  EXPECT_EQ(read_socks_request(request("a", 2)).command, SocksCommand::bind);
  EXPECT_EQ(read_socks_request(request("a", 3)).command, SocksCommand::udp);
  EXPECT_EQ(read_socks_request(request("a", 9)).command, SocksCommand::other);
}

TEST(Socks, MalformedRequestIsAnswered) {
  EXPECT_EQ(read_socks_request("\x05\x01\x01").reading, SocksReading::malformed);
  EXPECT_EQ(read_socks_request("\x05\x01\0\x03\0"s).reading, SocksReading::malformed);
  const SocksRequest other = read_socks_request("\x05\x01\0\x02\0"s);
  EXPECT_EQ(other.reading, SocksReading::malformed);
  EXPECT_EQ(other.fault, SocksReply::address_not_supported);
  EXPECT_EQ(read_socks_request("\x04\x01"s).reading, SocksReading::malformed);
}

}  // namespace
}  // namespace casemate::guest
