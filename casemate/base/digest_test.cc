#include "casemate/base/digest.h"

#include <gtest/gtest.h>

#include <set>

namespace casemate {
namespace {

TEST(Digest, IsSha256) {
  // FIPS 180-4 examples.
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Digest, OfBytesInPiecesIsThatOfTheWhole) {
  const std::string whole(1000, 'a');
  for (const std::size_t piece : {1U, 63U, 64U, 65U, 1000U}) {
    Sha256 sum;
    for (std::size_t at = 0; at < whole.size(); at += piece) {
      sum.update(std::string_view(whole).substr(at, piece));
    }
    EXPECT_EQ(sum.finish_hex(), sha256_hex(whole));
  }
}

TEST(Digest, RandomHexHasTheLengthAskedForAndDiffers) {
  EXPECT_EQ(random_hex(0), "");
  EXPECT_EQ(random_hex(1000).size(), 2000U);
  EXPECT_EQ(random_hex(6).find_first_not_of("0123456789abcdef"), std::string::npos);
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    seen.insert(random_hex(6));
  }
  EXPECT_EQ(seen.size(), 100U);
}

}  // namespace
}  // namespace casemate
