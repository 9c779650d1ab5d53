#include "casemate/guest/agent/refusals.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

// The number behind `key` at the beginning of a line.
std::optional<std::uint64_t> value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') continue;
    std::uint64_t value = 0;
    const char* const begin = line.data() + key.size() + 1;
    if (std::from_chars(begin, line.data() + line.size(), value).ec == std::errc{}) return value;
  }
  return std::nullopt;
}

// Of the first of these files that is there.
std::uint64_t read_value(std::initializer_list<const char*> paths, std::string_view key) noexcept {
  for (const char* path : paths) {
    const sys::UniqueFd file(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file) continue;
    char bytes[4096];
    const ssize_t count = read(file.get(), bytes, sizeof bytes);
    if (count <= 0) continue;
    if (const auto value = value_of({bytes, static_cast<std::size_t>(count)}, key)) return *value;
  }
  return 0;
}

}  // namespace

Refusals read_refusals() noexcept {
  return {
      .memory_kills = read_value(
          {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}, "oom_kill"),
      .forks =
          read_value({"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"}, "max")};
}

}  // namespace casemate::guest
