#include "casemate/core/guest_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "casemate/core/errors.h"

namespace casemate {
namespace {

// The components of a path, "." left out and ".." resolved by text. "/.." is "/", as for the
// kernel. Views into `path`.
std::vector<std::string_view> components_of(std::string_view path) {
  std::vector<std::string_view> components;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view component = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (component == "..") {
      if (!components.empty()) {
        components.pop_back();
      }
    } else if (!component.empty() && component != ".") {
      components.push_back(component);
    }
  }
  return components;
}

std::string absolute(std::span<const std::string_view> components) {
  std::string path;
  for (const std::string_view component : components) {
    path += '/';
    path += component;
  }
  return path.empty() ? "/" : path;
}

bool is_prefix(const std::vector<std::string_view>& base,
               const std::vector<std::string_view>& path) {
  return base.size() <= path.size() && std::equal(base.begin(), base.end(), path.begin());
}

[[noreturn]] void refuse_path(std::string_view rule) {
  // The path itself may be an attack on whoever reads the refusal; its author knows it anyway.
  throw SandboxPathRefused(fmt::format("a guest path is refused: {}", rule),
                           "use a path inside the working directory");
}

}  // namespace

std::string confine_guest_path(std::string_view path, std::string_view working_directory) {
  if (path.find('\\') != std::string_view::npos) {
    refuse_path("it has a backslash");
  }
  if (path.find('\0') != std::string_view::npos) {
    refuse_path("it has a NUL");
  }
  const std::string joined =
      path.starts_with('/') ? std::string(path) : fmt::format("{}/{}", working_directory, path);
  const std::vector<std::string_view> components = components_of(joined);
  if (!is_prefix(components_of(working_directory), components)) {
    refuse_path("it leads outside the working directory");
  }
  return absolute(components);
}

std::optional<std::string> guest_path_relative_to(std::string_view path, std::string_view base) {
  const std::vector<std::string_view> components = components_of(path);
  const std::vector<std::string_view> base_components = components_of(base);
  if (!is_prefix(base_components, components)) {
    return std::nullopt;
  }
  return fmt::format(
      "{}", fmt::join(components.begin() + static_cast<std::ptrdiff_t>(base_components.size()),
                      components.end(), "/"));
}

std::vector<std::string> guest_directory_chain(std::string_view path,
                                               std::string_view working_directory) {
  const std::string target = confine_guest_path(path, working_directory);
  const std::vector<std::string_view> components = components_of(target);
  std::vector<std::string> chain;
  for (std::size_t count = 0; count <= components.size(); ++count) {
    chain.push_back(absolute(std::span(components).first(count)));
  }
  return chain;
}

void refuse_symlinked_parents(const GuestStat& stat, std::string_view path,
                              std::string_view working_directory, IncludeSelf include_self) {
  const std::string target = confine_guest_path(path, working_directory);
  for (const std::string& directory : guest_directory_chain(target, working_directory)) {
    if (directory == "/" || (include_self == IncludeSelf::no && directory == target)) {
      continue;
    }
    const std::optional<SandboxEntry> entry = stat(directory);
    if (!entry) {
      return;
    }
    if (entry->kind == EntryKind::symlink) {
      refuse_path("it leads through a symbolic link");
    }
    if (entry->kind != EntryKind::directory) {
      throw SandboxFileError("a guest path is refused: one of its parents is no directory",
                             ENOTDIR);
    }
  }
}

std::string confine_guest_write_path(const GuestStat& stat, std::string_view path,
                                     std::string_view working_directory) {
  const std::string target = confine_guest_path(path, working_directory);
  if (target == normalise_guest_path(working_directory)) {
    refuse_path("it is the working directory itself");
  }
  refuse_symlinked_parents(stat, target, working_directory);
  const std::optional<SandboxEntry> leaf = stat(target);
  if (leaf && leaf->kind == EntryKind::symlink) {
    refuse_path("it names a symbolic link");
  }
  return target;
}

std::string normalise_guest_path(std::string_view path) { return absolute(components_of(path)); }

std::string shell_quote(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  // Single quotes keep everything but themselves; a quote is closed, escaped and opened again.
  std::string quoted = "'";
  for (const char character : word) {
    if (character == '\'') {
      quoted += "'\\''";
    } else {
      quoted += character;
    }
  }
  quoted += '\'';
  return quoted;
}

std::string shell_join(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) {
      line += ' ';
    }
    line += shell_quote(word);
  }
  return line;
}

}  // namespace casemate
