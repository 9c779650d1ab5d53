#include "casemate/guest/agent/refusals.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "casemate/guest/agent/program_group.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

constexpr std::string_view kMemoryKills = "oom_kill";
constexpr std::string_view kForks = "max";

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

// Of an open file, from its beginning; absent where it does not say.
std::optional<std::uint64_t> value_in(int file, std::string_view key) noexcept {
  char bytes[4096];
  const ssize_t count = pread(file, bytes, sizeof bytes, 0);
  if (count <= 0) return std::nullopt;
  return value_of({bytes, static_cast<std::size_t>(count)}, key);
}

// Of the first of these files that is there.
std::uint64_t read_value(std::initializer_list<const char*> paths, std::string_view key) noexcept {
  for (const char* path : paths) {
    const sys::UniqueFd file(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file) continue;
    if (const auto value = value_in(file.get(), key)) return *value;
  }
  return 0;
}

}  // namespace

Refusals read_refusals() noexcept {
  return {.memory_kills = read_value(
              {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"},
              kMemoryKills),
          .forks = read_value({"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"},
                              kForks)};
}

Refusals read_refusals(const ProgramGroup& group) noexcept {
  return {.memory_kills = value_in(group.memory_events.get(), kMemoryKills).value_or(0),
          .forks = value_in(group.fork_events.get(), kForks).value_or(0)};
}

}  // namespace casemate::guest
