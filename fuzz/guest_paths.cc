// Guest paths: what is confined is inside, in one spelling, and a quoted word is one word.

#include <optional>
#include <string>

#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

bool is_normal_absolute(std::string_view path) {
  if (path == "/") return true;
  const std::string framed = std::string(path) + "/";
  return path.starts_with('/') && !path.ends_with('/') && framed.find("//") == std::string::npos &&
         framed.find("/./") == std::string::npos && framed.find("/../") == std::string::npos;
}

// By text alone: `path` is `base` or below it.
bool is_within(std::string_view path, const std::string& base) {
  return path == base || base == "/" || path.starts_with(base + "/");
}

// The one word that a POSIX shell makes of `quoted`, or nothing when it is not exactly one word
// without expansions.
std::optional<std::string> unquoted(std::string_view quoted) {
  std::string word;
  bool inside = false;
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    const char c = quoted[i];
    if (inside) {
      if (c == '\'') {
        inside = false;
      } else {
        word += c;
      }
    } else if (c == '\'') {
      inside = true;
    } else if (c == '\\' && i + 1 < quoted.size()) {
      word += quoted[++i];
    } else if (std::string_view(" \t\n|&;<>()$`\"*?[]#~!{}^").find(c) != std::string_view::npos) {
      return std::nullopt;
    } else {
      word += c;
    }
  }
  if (inside || quoted.empty()) return std::nullopt;
  return word;
}

void check_confined(std::string_view path, const std::string& base) {
  std::string confined;
  try {
    confined = confine_guest_path(path, base);
  } catch (const SandboxPathRefused& refusal) {
    require(path.size() < 16 || refusal.message().find(path) == std::string::npos,
            "a refused path is not repeated");
    return;
  }
  require(path.find('\\') == std::string_view::npos && path.find('\0') == std::string_view::npos,
          "no confined path had a backslash or a NUL");
  require(is_normal_absolute(confined), "a confined path is absolute and normal");
  require(is_within(confined, base), "a confined path is inside");
  require(confine_guest_path(confined, base) == confined, "a confined path confines to itself");
  const auto relative = guest_path_relative_to(confined, base);
  require(relative.has_value(), "a confined path is relative to its directory");
  require(confine_guest_path(*relative, base) == confined, "and leads back");
  const auto chain = guest_directory_chain(path, base);
  require(chain.front() == "/" && chain.back() == confined, "the chain goes from / to the path");
  for (std::size_t i = 1; i < chain.size(); ++i) {
    require(is_within(chain[i], chain[i - 1]), "each of the chain is inside the one before");
  }
}

}  // namespace

void fuzz_guest_paths(std::string_view bytes) {
  Input input(bytes);
  const std::string base = normalise_guest_path("/" + std::string(input.until('\n')));
  const std::string_view path = input.rest();
  require(is_normal_absolute(base), "a normalised path is normal");
  require(normalise_guest_path(base) == base, "normalising twice changes nothing");
  if (base.find_first_of(std::string_view("\\\0", 2)) == std::string::npos) {
    check_confined(path, base);
  }
  const auto word = unquoted(shell_quote(path));
  require(word && *word == path, "a quoted word is one word for a shell, and the same");
}

}  // namespace casemate::fuzz
