#pragma once

// For tests: a text that people or models read, held against a file that a reviewer can read too.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace casemate {

// Expects `text` to be the file `tests/golden/<name>`, which has one newline more at its end. With
// CASEMATE_UPDATE_GOLDEN=1 in the environment it writes the file instead: look at the difference
// before it is committed. Tests start in the root of the source tree.
inline void expect_golden(std::string_view name, std::string_view text) {
  const std::filesystem::path path = std::filesystem::path("tests/golden") / name;
  const std::string wanted = std::string(text) + '\n';
  const char* update = std::getenv("CASEMATE_UPDATE_GOLDEN");
  if (update != nullptr && std::string_view(update) == "1") {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << wanted;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is missing; make it with CASEMATE_UPDATE_GOLDEN=1";
  std::ostringstream content;
  content << file.rdbuf();
  EXPECT_EQ(wanted, content.str()) << "against " << path;
}

}  // namespace casemate
