#include "casemate/host_tools/session.h"

#include <gtest/gtest.h>

#include <string>

#include "casemate/host_tools/channel_client_test.h"
#include "casemate/host_tools/tools_test.h"

namespace casemate {
namespace {

HostTool named(std::string name) {
  HostTool tool = echo();
  tool.name = std::move(name);
  return tool;
}

TEST(HostToolSession, ServesWhereItsSocketWasBoundAndEndsOnce) {
  HostToolSession session(registry_of({echo()}), {});
  const std::string address = sys::bind_to_fresh_name(session.socket());
  session.serve();
  EXPECT_EQ(ChannelClient(address).call("echo", "{}"), "{}");
  EXPECT_EQ(session.counters().dispatched, 1U);
  session.close();
  session.close();
  EXPECT_EQ(session.counters().dispatched, 1U);
  EXPECT_THROW(ChannelClient{address}, std::system_error);
}

TEST(HostToolSession, EndsWithoutEverHavingServed) {
  HostToolSession session(registry_of({echo()}), {});
}

TEST(HostToolSession, NamesTheAddressAndWhatMayBeAnIdentifier) {
  HostToolSession session(registry_of({named("b"), named("a_1"), named("two words"), named("übung"),
                                       named("a-b"), named("x\ny")}),
                          {});
  const auto environment = session.environment("/casemate/call/x.sock");
  EXPECT_EQ(environment.at("CASEMATE_HOST_TOOLS"), "/casemate/call/x.sock");
  EXPECT_EQ(environment.at("CASEMATE_HOST_TOOL_NAMES"), "a_1 b übung");
}

TEST(HostToolSession, BoundsTheNames) {
  HostToolSession session(registry_of({named(std::string(16 * 1024, 'a')),
                                       named(std::string(16 * 1024 - 1, 'b')), named("c")}),
                          {});
  EXPECT_EQ(session.environment("/x").at("CASEMATE_HOST_TOOL_NAMES").size(), 32U * 1024);
  // The space between two counts: one byte more is left out.
  HostToolSession over(
      registry_of({named(std::string(16 * 1024, 'a')), named(std::string(16 * 1024, 'b'))}), {});
  EXPECT_EQ(over.environment("/x").at("CASEMATE_HOST_TOOL_NAMES").size(), 16U * 1024);
}

}  // namespace
}  // namespace casemate
