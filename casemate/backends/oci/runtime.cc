#include "casemate/backends/oci/runtime.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <stop_token>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::oci {
namespace {

using sys::UniqueFd;

constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kMaxVersionBytes = 4096;
constexpr std::array kFamilies = {RuntimeFamily::crun, RuntimeFamily::runc, RuntimeFamily::runsc};

bool is_program(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

std::optional<std::string> search_program(std::string_view name, std::string_view search) {
  while (true) {
    const std::string_view folder = search.substr(0, search.find(':'));
    // Never the current directory.
    if (folder.starts_with('/')) {
      std::string path = fmt::format("{}/{}", folder, name);
      if (is_program(path)) return path;
    }
    if (folder.size() == search.size()) return std::nullopt;
    search.remove_prefix(folder.size() + 1);
  }
}

class VersionQuestion {
 public:
  explicit VersionQuestion(const std::string& path) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) sys::throw_errno("making a pipe");
    answer_.reset(ends[0]);
    const UniqueFd writing(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, writing.get(), 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    std::string name = path;
    char option[] = "--version";
    char* arguments[] = {name.data(), option, nullptr};
    char* environment[] = {nullptr};
    const int error =
        posix_spawn(&pid_, path.c_str(), &actions, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) {
      pid_ = -1;
      sys::throw_error(error, "starting " + path);
    }
  }
  ~VersionQuestion() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    // Where the application reaps every child itself there is nothing left to wait for.
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  VersionQuestion(const VersionQuestion&) = delete;
  VersionQuestion& operator=(const VersionQuestion&) = delete;

  // Until it closed its output, said enough, or the time is up.
  std::string answer(const CallControl& control) {
    const auto patience = std::chrono::steady_clock::now() + kPatience;
    const auto until = std::min(patience, control.deadline.value_or(patience));
    UniqueFd stopped;
    if (control.stop.stop_possible()) stopped = sys::make_event();
    const std::stop_callback callback(control.stop, [&] { sys::raise_event(stopped.get()); });
    std::string text;
    while (text.size() < kMaxVersionBytes) {
      std::array<pollfd, 2> entries{pollfd{answer_.get(), POLLIN, 0},
                                    pollfd{stopped.get(), POLLIN, 0}};
      if (sys::poll_until(entries, until) == 0) {
        if (until == patience) break;
        throw SandboxTimeout("the deadline came while the OCI runtime was asked for its version");
      }
      if (entries[0].revents == 0) {
        throw SandboxCancelled("cancelled while the OCI runtime was asked for its version");
      }
      std::array<char, 512> part{};
      const ssize_t count = read(answer_.get(), part.data(), part.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      text.append(part.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd answer_;
};

// "1.2.8" and what follows; a part that is missing is 0.
std::array<int, 3> numbers_of(std::string_view version) {
  std::array<int, 3> numbers{};
  for (int& number : numbers) {
    const auto [end, error] =
        std::from_chars(version.data(), version.data() + version.size(), number);
    if (error != std::errc{}) break;
    version.remove_prefix(static_cast<std::size_t>(end - version.data()));
    if (!version.starts_with('.')) break;
    version.remove_prefix(1);
  }
  return numbers;
}

}  // namespace

std::string_view to_string(RuntimeFamily family) {
  switch (family) {
    case RuntimeFamily::crun:
      return "crun";
    case RuntimeFamily::runc:
      return "runc";
    case RuntimeFamily::runsc:
      break;
  }
  return "runsc";
}

std::optional<std::string> find_program(std::string_view setting, std::string_view search) {
  if (setting.starts_with('/')) {
    const std::string path(setting);
    return is_program(path) ? std::optional(path) : std::nullopt;
  }
  if (!setting.empty()) return search_program(setting, search);
  for (const RuntimeFamily family : kFamilies) {
    if (auto found = search_program(to_string(family), search)) return found;
  }
  return std::nullopt;
}

std::optional<Runtime> parse_version(std::string_view path, std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  for (const RuntimeFamily family : kFamilies) {
    const std::string begin = fmt::format("{} version ", to_string(family));
    if (!line.starts_with(begin)) continue;
    const std::string_view version = line.substr(begin.size());
    return Runtime{.path = std::string(path),
                   .family = family,
                   .version = escape_for_display(version.substr(0, version.find(' ')))};
  }
  return std::nullopt;
}

Runtime ask_runtime(const std::string& path, const CallControl& control) {
  try {
    const std::string text = VersionQuestion(path).answer(control);
    if (auto runtime = parse_version(path, text)) return std::move(*runtime);
    throw SandboxUnavailable(
        fmt::format("{} is no OCI runtime that is known here: it answers --version with \"{}\"",
                    escape_for_display(path), escape_for_display(text.substr(0, text.find('\n')))),
        "set the backend's runtime to crun, runc or runsc");
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(fmt::format("the OCI runtime {} cannot be started: {}",
                                         escape_for_display(path), error.what()));
  }
}

namespace {

// The day of a release, as runsc has it in its version ("release-20240729.0", "0.0~20240729.0");
// 0 where there is none.
int day_of(std::string_view version) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::size_t kDayDigits = 8;
  while (!version.empty()) {
    version.remove_prefix(std::min(version.find_first_of(kDigits), version.size()));
    const std::size_t count = std::min(version.find_first_not_of(kDigits), version.size());
    int day = 0;
    if (count == kDayDigits) std::from_chars(version.data(), version.data() + count, day);
    if (day != 0) return day;
    version.remove_prefix(count);
  }
  return 0;
}

}  // namespace

std::vector<std::string_view> known_faults(const Runtime& runtime) {
  if (runtime.family == RuntimeFamily::runsc) {
    // Debian's first version with the fix; one that names no day may be any.
    constexpr int kMended = 20240729;
    const int day = day_of(runtime.version);
    if (day == 0 || day >= kMended) return {};
    return {"CVE-2023-7258"};
  }
  if (runtime.family != RuntimeFamily::runc) return {};
  const std::array<int, 3> version = numbers_of(runtime.version);
  // Mended in 1.2.8, 1.3.3 and 1.4.0 (opencontainers/runc, advisories of November 2025).
  const bool mended = version >= std::array{1, 4, 0} ||
                      (version >= std::array{1, 3, 3} && version < std::array{1, 4, 0}) ||
                      (version >= std::array{1, 2, 8} && version < std::array{1, 3, 0});
  if (mended) return {};
  return {"CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"};
}

}  // namespace casemate::oci
