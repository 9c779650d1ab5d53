#pragma once

// A directory for one test, and short ways to fill it and look at it.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <system_error>

namespace casemate {

class Scratch {
 public:
  Scratch() {
    std::string pattern = testing::TempDir() + "casemate-test-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "mkdtemp");
    }
    path_ = std::filesystem::canonical(pattern);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void put(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << content;
  ASSERT_TRUE(file.good()) << path;
}

inline std::string get(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Everything below `path`, relative, links not followed.
inline std::set<std::string> tree(const std::filesystem::path& path) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    names.insert(entry.path().lexically_relative(path).string());
  }
  return names;
}

}  // namespace casemate
