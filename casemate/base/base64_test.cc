#include "casemate/base/base64.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace casemate {
namespace {

// The vectors of RFC 4648, section 10.
TEST(Base64, WritesAndReadsTheVectorsOfTheStandard) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(encode_base64(bytes), text);
    EXPECT_EQ(decode_base64(text), bytes);
  }
}

TEST(Base64, RefusesWhatItWouldNotWrite) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zm 9v", "Zm9v\n",
                           "====", "Z===", "Zg==Zg==", "Zm-v", "=Zm9"}) {
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
  }
}

RC_GTEST_PROP(Base64, GivesBackAnyBytes, (const std::string& bytes)) {
  RC_ASSERT(decode_base64(encode_base64(bytes)) == bytes);
}

}  // namespace
}  // namespace casemate
