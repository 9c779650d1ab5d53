#include "casemate/mcp/handles.h"

#include <gtest/gtest.h>

namespace casemate::mcp {
namespace {

std::optional<std::string> add(HandleRegistry& handles, std::string_view identity,
                               Share share = Share::three_quarters) {
  return handles.add(std::make_shared<Conversation>(Conversation::End()), identity, share);
}

TEST(HandleRegistry, OneOfSeveralCallersLeavesSomeToTheRest) {
  HandleRegistry handles(8, std::chrono::hours(1));
  for (int count = 0; count < 6; ++count) EXPECT_TRUE(add(handles, "one"));
  EXPECT_FALSE(add(handles, "one"));
  EXPECT_TRUE(add(handles, "two"));
  EXPECT_TRUE(add(handles, "two"));
  EXPECT_FALSE(add(handles, "two")) << "all are given";
}

TEST(HandleRegistry, WhoIsAloneHasAll) {
  HandleRegistry handles(8, std::chrono::hours(1));
  for (int count = 0; count < 8; ++count) EXPECT_TRUE(add(handles, "stdio", Share::whole));
  EXPECT_FALSE(add(handles, "stdio", Share::whole));
}

}  // namespace
}  // namespace casemate::mcp
