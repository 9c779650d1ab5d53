#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace casemate::linux_tests {

// Copies a program of this machine into usr/bin of a directory that becomes an image, and the
// libraries that it needs to where it looks for them.
inline void copy_program(const std::string& path, const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  const auto copy = [](const fs::path& from, const fs::path& to) {
    fs::create_directories(to.parent_path());
    fs::copy_file(fs::canonical(from), to, fs::copy_options::skip_existing);
  };
  copy(path, root / "usr/bin" / fs::path(path).filename());
  FILE* lines = popen(("ldd " + path).c_str(), "re");
  ASSERT_NE(lines, nullptr);
  char line[512];
  while (std::fgets(line, sizeof line, lines) != nullptr) {
    const std::string text = line;
    const auto from = text.find('/');
    if (from == text.npos) continue;
    const std::string library = text.substr(from, text.find(' ', from) - from);
    copy(library, root / (library.starts_with("/usr/") ? library : "/usr" + library).substr(1));
  }
  pclose(lines);
}

}  // namespace casemate::linux_tests
