#include "casemate/backends/docker/labels.h"

#include <gtest/gtest.h>

#include <string>

namespace casemate::docker {
namespace {

TEST(DockerLabels, APlainValueStandsAsItIs) {
  EXPECT_EQ(label_value("a-b_c.D9"), "a-b_c.D9");
  EXPECT_EQ(label_value(std::string(63, 'x')), std::string(63, 'x'));
  EXPECT_EQ(label_value(""), "");
}

TEST(DockerLabels, AnyOtherIsADigest) {
  for (const std::string& value : {std::string(64, 'x'), std::string("a b"), std::string("a=b"),
                                   std::string("\xc3\xa9"), std::string("a\nb")}) {
    const std::string mapped = label_value(value);
    EXPECT_EQ(mapped.size(), 55U) << value;
    EXPECT_TRUE(mapped.starts_with("sha256-")) << value;
    // What looks like one is another's, so that no value can be given for a second.
    EXPECT_NE(label_value(mapped), mapped) << value;
  }
}

TEST(DockerLabels, ASpecsLabelCannotShadowOurs) {
  SandboxSpec spec;
  spec.kind = "k";
  spec.labels = {{"scope", "theirs"}, {"casemate.owner", "theirs"}};
  const auto labels = labels_of({"s", "t", "a"}, spec, "f");
  EXPECT_EQ(labels.at("casemate.scope"), "s");
  EXPECT_EQ(labels.at("casemate.owner"), "casemate");
  EXPECT_EQ(labels.at("casemate.label.scope"), "theirs");
  EXPECT_EQ(labels.at("casemate.label.casemate.owner"), "theirs");
}

TEST(DockerLabels, AreOfTheirKeyAndKindAlone) {
  SandboxSpec spec;
  spec.kind = "k";
  const auto labels = labels_of({"s", "t", "a"}, spec, "f");
  EXPECT_TRUE(is_of(labels, {"s", "t", "a"}, "k"));
  EXPECT_FALSE(is_of(labels, {"s", "t", "a"}, "other"));
  EXPECT_FALSE(is_of(labels, {"s", "t", "b"}, "k"));
  EXPECT_FALSE(is_of({}, {"s", "t", "a"}, "k"));
}

// LC-10
TEST(DockerLabels, DifferentKeysHaveDifferentNames) {
  EXPECT_NE(container_name({"a-b", "c", "d"}, "k"), container_name({"a", "b-c", "d"}, "k"));
  EXPECT_NE(container_name({"a", "c", "d"}, "k"), container_name({"A", "c", "d"}, "k"));
  EXPECT_EQ(container_name({"a", "c", "d"}, "k").size(), 33U);
}

}  // namespace
}  // namespace casemate::docker
