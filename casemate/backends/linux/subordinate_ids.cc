#include "casemate/backends/linux/subordinate_ids.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <string>
#include <vector>

#include "casemate/sys/file.h"

namespace casemate::linux_backend {
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

// Empty where the user has no entry anywhere.
std::string name_of(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> room(16 * 1024);
  getpwuid_r(user, &entry, room.data(), room.size(), &found);
  return found == nullptr ? "" : found->pw_name;
}

}  // namespace

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

std::optional<guest::SubordinateIds> subordinate_ids() noexcept try {
  const uid_t user = geteuid();
  if (user == 0) return std::nullopt;
  const auto users = sys::read_file_if_there(AT_FDCWD, "/etc/subuid", kMaxFileBytes);
  const auto groups = sys::read_file_if_there(AT_FDCWD, "/etc/subgid", kMaxFileBytes);
  if (!users || !groups) return std::nullopt;
  const std::string name = name_of(user);
  const auto user_range = largest_range(*users, name, user);
  const auto group_range = largest_range(*groups, name, user);
  if (!user_range || !group_range) return std::nullopt;
  return guest::SubordinateIds{.users = *user_range, .groups = *group_range};
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace casemate::linux_backend
