#include "casemate/backends/docker/places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "casemate/backends/docker/record.h"
#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/container_agent.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::docker {
namespace {

using sys::UniqueFd;

constexpr std::size_t kLockDigits = 3;
constexpr std::string_view kNamePrefix = "casemate-";
constexpr char kHomeName[] = "home";
constexpr char kEngineName[] = "engine";

UniqueFd open_lock(int directory, const std::string& name) {
  return sys::open_at(directory, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
}

bool try_file(int file, FileLock::Kind kind) {
  const int operation = kind == FileLock::Kind::shared ? LOCK_SH : LOCK_EX;
  while (flock(file, operation | LOCK_NB) < 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) sys::throw_errno("locking");
  }
  return true;
}

std::string lock_name(std::string_view digest) {
  return std::string(digest.substr(0, kLockDigits)) + ".lock";
}

UniqueFd open_private(int parent, const std::string& path, const std::string& shown) {
  try {
    sys::make_directory_at(parent, path.c_str(), 0700);
    UniqueFd directory = sys::open_at(parent, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    struct stat status{};
    if (fstat(directory.get(), &status) < 0) sys::throw_errno("looking at " + shown);
    if (status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
      throw SandboxUnavailable(
          fmt::format("the state directory {} belongs to user {} with mode {:o}; only a directory "
                      "of this user's with mode 700 is accepted",
                      shown, status.st_uid, status.st_mode & 07777),
          "choose another (state_dir)");
    }
    return directory;
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(fmt::format("the state directory {}: {}", shown, error.what()),
                             "choose another (state_dir)");
  }
}

// Under a lock, so that a process that was killed half-way leaves nothing but a beginning.
std::string read_or_make_home(int directory, int locks) {
  const auto lock = FileLock::wait(locks, "home.lock", FileLock::Kind::exclusive, {});
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

bool is_private_directory_of(unsigned user, const std::string& path) {
  struct stat status{};
  return path.starts_with('/') && lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == user && (status.st_mode & 077) == 0;
}

}  // namespace

FileLock FileLock::wait(int directory, const std::string& name, Kind kind,
                        const CallControl& control) {
  UniqueFd file = open_lock(directory, name);
  // The kernel has no lock that waits with a bound and without signals; asking again, ever less
  // often, is cheap.
  std::chrono::milliseconds pause{1};
  while (!try_file(file.get(), kind)) {
    if (control.stop.stop_requested()) {
      throw SandboxCancelled("cancelled while waiting for the sandbox's lock");
    }
    const auto now = std::chrono::steady_clock::now();
    if (control.deadline && now >= *control.deadline) {
      throw SandboxTimeout("the deadline came while waiting for the sandbox's lock",
                           "another process makes or ends that sandbox");
    }
    auto until = now + pause;
    if (control.deadline) until = std::min(until, *control.deadline);
    sys::poll_until({}, until);
    pause = std::min(pause * 2, std::chrono::milliseconds{20});
  }
  return FileLock(std::move(file));
}

std::optional<FileLock> FileLock::attempt(int directory, const std::string& name, Kind kind) {
  UniqueFd file = open_lock(directory, name);
  if (!try_file(file.get(), kind)) return std::nullopt;
  return FileLock(std::move(file));
}

FileLock::~FileLock() {
  if (file_ && owner_.is_current()) flock(file_.get(), LOCK_UN);
}

Places::Places(const std::string& state_dir) : path_(state_dir + "/docker/places") {
  const UniqueFd state = open_private(AT_FDCWD, state_dir, state_dir);
  const std::string own = state_dir + "/docker";
  const UniqueFd docker = open_private(state.get(), "docker", own);
  places_ = open_private(docker.get(), "places", path_);
  locks_ = open_private(docker.get(), "locks", own + "/locks");
  try {
    home_ = read_or_make_home(docker.get(), locks_.get());
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(fmt::format("the state directory {}: {}", own, error.what()),
                             "choose another (state_dir)");
  }
}

FileLock Places::lock(std::string_view digest, const CallControl& control) const {
  return FileLock::wait(locks_.get(), lock_name(digest), FileLock::Kind::exclusive, control);
}

std::optional<FileLock> Places::try_lock(std::string_view digest) const {
  return FileLock::attempt(locks_.get(), lock_name(digest), FileLock::Kind::exclusive);
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

std::string default_state_directory(unsigned user, const char* runtime_dir) {
  if (user == 0) return "/run/casemate";
  // The second for what runs without a login's environment, which has to find the same sandboxes.
  for (const std::string& candidate : {std::string(runtime_dir == nullptr ? "" : runtime_dir),
                                       fmt::format("/run/user/{}", user)}) {
    if (is_private_directory_of(user, candidate)) return candidate + "/casemate";
  }
  return fmt::format("/tmp/casemate-{}", user);
}

std::string place_directory(std::string_view container_name, std::string_view place) {
  if (container_name.starts_with(kNamePrefix)) container_name.remove_prefix(kNamePrefix.size());
  return fmt::format("{}-{}", container_name, place);
}

UniqueFd connect_in(int directory, const char* name) {
  try {
    // Through /proc: a socket address holds 107 bytes and a state directory may be longer.
    return sys::connect_to_address(fmt::format("/proc/self/fd/{}/{}", directory, name));
  } catch (const std::system_error& error) {
    const int number = error.code().value();
    if (number == ECONNREFUSED || number == ENOENT || number == ENOTDIR) return {};
    throw;
  }
}

}  // namespace casemate::docker
