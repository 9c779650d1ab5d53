#include "casemate/backends/microvm/saved_machines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::microvm {
namespace {

constexpr std::size_t kMakerDigits = 16;
constexpr std::size_t kDigestDigits = 64;
constexpr std::size_t kNameBytes = kMakerDigits + 1 + kDigestDigits + 1 + kDigestDigits;

struct Saved {
  std::string name;
  time_t used = 0;
};

std::string_view maker_in(std::string_view name) { return name.substr(0, kMakerDigits); }
std::string_view image_in(std::string_view name) {
  return name.substr(kMakerDigits + 1, kDigestDigits);
}

// What else is there is being written, or nobody's.
bool is_saved_machine(std::string_view name) {
  return name.size() == kNameBytes && name.find_first_not_of("0123456789abcdef-") == name.npos;
}

// No part can pass for the end of one and the beginning of the next.
void add(Sha256& digest, std::string_view part) {
  digest.update(fmt::format("{}:", part.size()));
  digest.update(part);
}

}  // namespace

std::string maker_of(const SavedMachineParts& parts) {
  Sha256 digest;
  for (const std::string& part : {parts.host, parts.hypervisor, parts.boot}) add(digest, part);
  return digest.finish_hex().substr(0, kMakerDigits);
}

std::string saved_machine_name(const SavedMachineParts& parts) {
  Sha256 digest;
  for (const std::string& part : {parts.host, parts.hypervisor, parts.boot, parts.image}) {
    add(digest, part);
  }
  for (const std::string& argument : parts.arguments) add(digest, argument);
  return fmt::format("{}-{}-{}", maker_of(parts), parts.image, digest.finish_hex());
}

void prune_saved_machines(const std::string& directory, const SavedMachinesRule& rule) noexcept {
  try {
    const sys::UniqueFd opened =
        sys::open_at(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    std::vector<Saved> found;
    for (const std::string& name : sys::list_directory_at(opened.get(), ".")) {
      struct stat status{};
      if (is_saved_machine(name) &&
          fstatat(opened.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        found.push_back({name, status.st_mtim.tv_sec});
      }
    }
    std::sort(found.begin(), found.end(),
              [](const Saved& left, const Saved& right) { return left.used > right.used; });
    const time_t now = time(nullptr);
    std::size_t stay = 0;
    for (const Saved& saved : found) {
      const bool is_ours = maker_in(saved.name) == rule.maker;
      const auto unused = is_ours ? rule.unused : rule.unused_of_another_maker;
      const bool is_wanted = saved.used >= now - std::chrono::seconds(unused).count() &&
                             rule.has_image(image_in(saved.name));
      if (is_wanted && stay++ < rule.most) continue;
      const char* name = saved.name.c_str();
      const sys::UniqueFd file(openat(opened.get(), name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
      if (file && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlinkat(opened.get(), name, 0);
    }
  } catch (const std::exception&) {
    // There is none yet.
  }
}

void mark_saved_machine_used(const std::string& path) noexcept {
  utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

}  // namespace casemate::microvm
