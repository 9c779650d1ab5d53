#include "casemate/backends/docker/places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "casemate/backends/docker/record.h"
#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/container_agent.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::docker {
namespace {

using local::FileLock;
using sys::UniqueFd;

constexpr std::string_view kNamePrefix = "casemate-";
constexpr char kHomeName[] = "home";
constexpr char kEngineName[] = "engine";

// Under a lock, so that a process that was killed half-way leaves nothing but a beginning.
std::string read_or_make_home(int directory, int locks) {
  const auto lock = FileLock::wait(locks, "home.lock", FileLock::Kind::exclusive, {}, kHomeName);
  const auto known = sys::read_file_if_there(directory, kHomeName, 64);
  if (known && is_place_name(*known)) return *known;
  const UniqueFd file =
      sys::open_at(directory, kHomeName, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  std::string made = random_hex(8);
  if (write(file.get(), made.data(), made.size()) != static_cast<ssize_t>(made.size())) {
    sys::throw_errno("writing " + std::string(kHomeName));
  }
  return made;
}

}  // namespace

Places::Places(const std::string& state_dir) : path_(state_dir + "/docker/places") {
  const UniqueFd state = local::open_private(AT_FDCWD, state_dir, state_dir);
  const std::string own = state_dir + "/docker";
  const UniqueFd docker = local::open_private(state.get(), "docker", own);
  places_ = local::open_private(docker.get(), "places", path_);
  locks_ = local::open_private(docker.get(), "locks", own + "/locks");
  try {
    home_ = read_or_make_home(docker.get(), locks_.get());
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(fmt::format("the state directory {}: {}", own, error.what()),
                             "choose another (state_dir)");
  }
}

FileLock Places::lock(std::string_view digest, const CallControl& control) const {
  return FileLock::wait(locks_.get(), local::lock_name(digest), FileLock::Kind::exclusive, control,
                        "the sandbox's lock");
}

std::optional<FileLock> Places::try_lock(std::string_view digest) const {
  return FileLock::attempt(locks_.get(), local::lock_name(digest), FileLock::Kind::exclusive);
}

UniqueFd Places::make(const std::string& name) const {
  if (mkdirat(places_.get(), name.c_str(), 0700) < 0) sys::throw_errno("making " + path_of(name));
  UniqueFd directory =
      sys::open_at(places_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  sys::write_file_at(directory.get(), kBusyLockName, "", 0600);
  return directory;
}

void Places::name_engine(const std::string& name, const std::string& engine) const {
  sys::write_file_at(open(name).get(), kEngineName, engine, 0600);
}

bool Places::is_of_another(const std::string& name, const std::string& engine) const {
  const UniqueFd directory = open(name);
  if (!directory) return false;
  const auto named = sys::read_file_if_there(directory.get(), kEngineName, 4096);
  return named && *named != engine;
}

UniqueFd Places::open(const std::string& name) const {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd directory(openat(places_.get(), name.c_str(), kFlags));
  if (!directory && errno != ENOENT) sys::throw_errno("opening " + path_of(name));
  return directory;
}

void Places::remove(const std::string& name) const noexcept try {
  const UniqueFd directory = open(name);
  if (!directory) return;
  for (const char* file : {guest::kAgentSocketName, guest::kLeaseSocketName, guest::kFirstLeaseName,
                           kBusyLockName, kEngineName}) {
    unlinkat(directory.get(), file, 0);
  }
  unlinkat(places_.get(), name.c_str(), AT_REMOVEDIR);
} catch (const std::system_error&) {
  // The next sweep finds it.
}

std::vector<std::string> Places::names() const {
  return sys::list_directory_at(places_.get(), ".");
}

std::string place_directory(std::string_view container_name, std::string_view place) {
  if (container_name.starts_with(kNamePrefix)) container_name.remove_prefix(kNamePrefix.size());
  return fmt::format("{}-{}", container_name, place);
}

}  // namespace casemate::docker
