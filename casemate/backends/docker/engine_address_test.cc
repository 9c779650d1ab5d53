#include "casemate/backends/docker/engine_address.h"

#include <gtest/gtest.h>

#include <string>

#include "casemate/core/errors.h"

namespace casemate::docker {
namespace {

TEST(EngineAddress, RefusesWhatIsNoneOfOurs) {
  for (const std::string text :
       {"", "docker", "ssh://host", "npipe:////./pipe/docker_engine", "http://host:1", "tcp://",
        "tcp://:2376", "tcp://host:", "tcp://host:port", "tcp://host:123456", "tcp://a b:1",
        "tcp://host/path:1", "tcp://::1:2376", "unix://relative"}) {
    EXPECT_THROW(parse_engine_address(text), InvalidArgument) << text;
  }
  EXPECT_THROW(parse_engine_address("/" + std::string(107, 'x')), InvalidArgument);
  EXPECT_THROW(parse_engine_address(std::string("/a\0b", 4)), InvalidArgument);
}

TEST(EngineAddress, ReadsSocketsAndPorts) {
  EXPECT_EQ(parse_engine_address("unix:///run/x.sock").path, "/run/x.sock");
  EXPECT_EQ(parse_engine_address("/run/x.sock").path, "/run/x.sock");
  const EngineAddress named = parse_engine_address("tcp://host.example");
  EXPECT_EQ(named.kind, EngineAddress::Kind::tcp);
  EXPECT_EQ(named.host, "host.example");
  EXPECT_EQ(named.port, "2376");
  const EngineAddress numbered = parse_engine_address("tcp://[::1]:2375");
  EXPECT_EQ(numbered.host, "::1");
  EXPECT_EQ(numbered.port, "2375");
}

}  // namespace
}  // namespace casemate::docker
