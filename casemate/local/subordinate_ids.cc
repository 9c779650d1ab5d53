#include "casemate/local/subordinate_ids.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <string>
#include <vector>

#include "casemate/sys/file.h"

namespace casemate::local {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

// Up to the separator, which goes too.
std::string_view take_until(std::string_view& text, char separator) {
  const std::string_view field = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(field.size() + 1, text.size()));
  return field;
}

bool is_there(const char* tool) {
  return access(fmt::format("/usr/bin/{}", tool).c_str(), X_OK) == 0;
}

}  // namespace

std::string name_of_user(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> room(16 * 1024);
  getpwuid_r(user, &entry, room.data(), room.size(), &found);
  return found == nullptr ? "" : found->pw_name;
}

std::optional<guest::IdRange> largest_range(std::string_view text, std::string_view name,
                                            uid_t user) {
  guest::IdRange largest;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const std::string_view owner = take_until(line, ':');
    const auto first = number(take_until(line, ':'));
    const auto count = number(line);
    const bool ours = (!name.empty() && owner == name) || number(owner) == user;
    if (ours && first && count && *count > largest.count) largest = {*first, *count};
  }
  if (largest.count < 2) return std::nullopt;
  return largest;
}

std::uint32_t first_free_id(std::string_view text) {
  std::uint32_t free = 100000;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    take_until(line, ':');
    const auto first = number(take_until(line, ':'));
    const auto count = number(line);
    if (first && count && *first + *count > free && *first + *count > *first) {
      free = *first + *count;
    }
  }
  return free;
}

bool maps_ids_to_spare(std::string_view map) {
  while (!map.empty()) {
    std::string_view line = take_until(map, '\n');
    // The kernel aligns its numbers.
    std::vector<std::uint32_t> numbers;
    while (!line.empty()) {
      if (const auto value = number(take_until(line, ' '))) numbers.push_back(*value);
    }
    // Id 0 is given to nobody.
    if (numbers.size() == 3 && numbers[2] >= (numbers[0] == 0 ? 3U : 2U)) return true;
  }
  return false;
}

std::optional<Remedy> remedy_for_one_id() {
  const auto read = [](const char* path) {
    return sys::read_file_if_there(AT_FDCWD, path, kMaxFileBytes).value_or("");
  };
  const uid_t user = geteuid();
  if (user == 0) {
    if (maps_ids_to_spare(read("/proc/self/uid_map")) &&
        maps_ids_to_spare(read("/proc/self/gid_map"))) {
      return std::nullopt;
    }
    return Remedy{.hint =
                      "this root has no user ids to give away (/proc/self/uid_map): run as an "
                      "ordinary user, or as a root to whom more are mapped",
                  .command = ""};
  }
  if (!is_there("newuidmap") || !is_there("newgidmap")) {
    Remedy remedy = install_package("uidmap");
    remedy.hint = "newuidmap and newgidmap, which give out more, are missing; " + remedy.hint;
    return remedy;
  }
  if (subordinate_ids()) return std::nullopt;
  const std::string name = name_of_user(user);
  if (name.empty()) {
    return Remedy{.hint = "this user has no name, to which a range could be given", .command = ""};
  }
  const std::uint32_t first =
      std::max(first_free_id(read("/etc/subuid")), first_free_id(read("/etc/subgid")));
  const std::string range = fmt::format("{}-{}", first, first + 65535);
  const std::string command =
      fmt::format("usermod --add-subuids {} --add-subgids {} {}", range, range, name);
  return Remedy{.hint = "a range can be given to this user; as root: " + command,
                .command = command};
}

std::optional<guest::SubordinateIds> subordinate_ids() noexcept try {
  const uid_t user = geteuid();
  if (user == 0) return std::nullopt;
  const auto users = sys::read_file_if_there(AT_FDCWD, "/etc/subuid", kMaxFileBytes);
  const auto groups = sys::read_file_if_there(AT_FDCWD, "/etc/subgid", kMaxFileBytes);
  if (!users || !groups) return std::nullopt;
  const std::string name = name_of_user(user);
  const auto user_range = largest_range(*users, name, user);
  const auto group_range = largest_range(*groups, name, user);
  if (!user_range || !group_range) return std::nullopt;
  return guest::SubordinateIds{.users = *user_range, .groups = *group_range};
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace casemate::local
