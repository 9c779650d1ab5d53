#include "casemate/backends/docker/record.h"

#include <gtest/gtest.h>

#include <string>

namespace casemate::docker {
namespace {

Record full() {
  return {.key = {"s", "t", "a"},
          .kind = "k",
          .fingerprint = "f",
          .image = "python:3",
          .environment = {{"PATH", "/bin"}},
          .work_dir = "/workspace",
          .labels = {{"x", "y"}},
          .limits_not_held = {Limit::disk},
          .created = 17,
          .place = "0123456789abcdef",
          .home = "fedcba9876543210"};
}

TEST(DockerRecord, ComesBackAsItWas) {
  const auto back = decode_record(encode_record(full()));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, full());
}

TEST(DockerRecord, OfAnotherBuildIsKnownAndNotAdopted) {
  std::string text = encode_record(full());
  text.replace(text.find("\"version\":1"), 11, "\"version\":9");
  auto back = decode_record(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->key, full().key);
  EXPECT_EQ(back->fingerprint, "");
  back = decode_record(
      R"({"scope":"s","thread":"t","agent":"a","kind":"k","place":"0123456789abcdef","home":""})");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->fingerprint, "");
}

TEST(DockerRecord, NamesNoPlaceOutsideOfItsDirectory) {
  for (const std::string place : {"", "..", "../../../../etc", "0123456789abcdeg"}) {
    Record record = full();
    record.place = place;
    EXPECT_FALSE(decode_record(encode_record(record))) << place;
  }
  for (const std::string text : {"", "{}", "[]", "null", "{\"scope\":1}"}) {
    EXPECT_FALSE(decode_record(text)) << text;
  }
}

}  // namespace
}  // namespace casemate::docker
