#include "casemate/mcp/artifacts.h"

#include <gtest/gtest.h>

namespace casemate::mcp {
namespace {

const Owner kMe{"me", 1};
const Owner kOther{"other", 2};

std::string publish(ArtifactRegistry& registry, const Owner& owner) {
  return registry.publish({"a", "a", "/host/a", 1}, owner);
}

TEST(ArtifactRegistry, ACursorTellsNothingOfOthersAndIsTheirsToUseAlone) {
  ArtifactRegistry registry;
  std::string last;
  for (std::size_t at = 0; at <= ArtifactRegistry::kPage; ++at) {
    publish(registry, kOther);
    const std::string uri = publish(registry, kMe);
    if (at + 1 == ArtifactRegistry::kPage) last = uri;
  }
  const auto first = registry.list(kMe, true, std::nullopt);
  ASSERT_TRUE(first && first->cursor);
  EXPECT_NE(last.find("/" + *first->cursor + "/"), std::string::npos) << "part of what they know";
  const auto second = registry.list(kMe, true, first->cursor);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->artifacts.size(), 1u);
  EXPECT_FALSE(second->cursor);
  EXPECT_FALSE(registry.list(kOther, true, first->cursor));
  EXPECT_FALSE(registry.list({"me", 3}, false, first->cursor)) << "of another connection";
  for (const std::string& wrong : {std::string(), std::string("0"), std::string("100"),
                                   first->cursor->substr(1), *first->cursor + "/a", last}) {
    EXPECT_FALSE(registry.list(kMe, true, wrong)) << wrong;
  }
}

TEST(ArtifactRegistry, WhoLandsMuchPushesOutHisOwnAlone) {
  ArtifactRegistry registry;
  const std::string others = publish(registry, kOther);
  const std::string oldest = publish(registry, kMe);
  const std::string next = publish(registry, kMe);
  for (std::size_t at = 3; at <= ArtifactRegistry::kMaxKept; ++at) publish(registry, kMe);
  EXPECT_TRUE(registry.find(others, "other"));
  EXPECT_FALSE(registry.find(oldest, "me"));
  EXPECT_TRUE(registry.find(next, "me"));
}

}  // namespace
}  // namespace casemate::mcp
