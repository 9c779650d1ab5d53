#include <algorithm>
#include <array>
#include <utility>

#include "casemate/guest/agent/exec_child.h"

namespace casemate::guest {
namespace {

// Everything a program finds in its environment when the host says nothing. UTF-8 everywhere,
// without depending on the image's locales.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kBaseEnvironment{{
    {"PATH", "/usr/local/bin:/usr/bin:/bin:/casemate/bin"},
    {"HOME", "/home/user"},
    {"USER", "user"},
    {"LOGNAME", "user"},
    {"LANG", "C.UTF-8"},
    {"TMPDIR", "/tmp"},
}};

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

ProgramImage::ProgramImage(std::vector<std::string> argv,
                           const std::vector<std::pair<std::string, std::string>>& environment)
    : argv_(std::move(argv)) {
  std::string path;
  for (const auto& [name, value] : kBaseEnvironment) {
    const bool replaced = std::any_of(environment.begin(), environment.end(),
                                      [&](const auto& entry) { return entry.first == name; });
    if (replaced) continue;
    if (name == "PATH") path = value;
    environment_.push_back(std::string(name) + "=" + std::string(value));
  }
  for (const auto& [name, value] : environment) {
    if (name == "PATH") path = value;
    environment_.push_back(name + "=" + value);
  }

  const std::string& word = argv_.front();
  if (word.empty() || word.find('/') != std::string::npos) {
    candidates_.push_back(word);
  } else {
    std::string_view rest = path;
    while (true) {
      const std::size_t colon = rest.find(':');
      const std::string_view directory = rest.substr(0, colon);
      // POSIX: an empty entry is the current directory.
      candidates_.push_back((directory.empty() ? "." : std::string(directory)) + "/" + word);
      if (colon == std::string_view::npos) break;
      rest.remove_prefix(colon + 1);
    }
  }
  argv_pointers_ = pointers(argv_);
  environment_pointers_ = pointers(environment_);
}

}  // namespace casemate::guest
