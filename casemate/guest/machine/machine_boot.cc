#include "casemate/guest/machine/machine_boot.h"

#include <fcntl.h>
#include <linux/random.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>

#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// Of the machine's own time, which under emulation is many times slower than the host's.
constexpr std::chrono::seconds kDevicePatience{60};
constexpr std::size_t kMaxOrderBytes = 64 * 1024;
constexpr char kNewRoot[] = "/new";
constexpr char kControlGroups[] = "/sys/fs/cgroup";
// The kernel's own default.
constexpr std::uint64_t kPeriodMicroseconds = 100000;

void mount_at(const char* type, const char* path, unsigned long flags, const char* options = "") {
  sys::make_directory_at(AT_FDCWD, path, 0755);
  if (mount(type, path, type, flags, options) < 0) {
    sys::throw_errno(std::string("mounting ") + path);
  }
}

void write_file(const std::string& path, const std::string& text) {
  sys::write_control_file_at(AT_FDCWD, path.c_str(), text);
}

}  // namespace

void mount_kernel_file_systems() {
  mount_at("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  mount_at("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  mount_at("devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC);
  // In place of the console, or of nothing.
  UniqueFd opened = sys::open_at(AT_FDCWD, "/dev/null", O_RDWR);
  const UniqueFd null(fcntl(opened.get(), F_DUPFD_CLOEXEC, 3));
  // It may be one of them.
  opened.reset();
  for (const int standard : {0, 1, 2}) {
    if (dup2(null.get(), standard) < 0) sys::throw_errno("opening standard streams");
  }
}

void load_modules() {
  const std::string order = sys::read_file_at(AT_FDCWD, kModuleOrder, kMaxOrderBytes);
  std::string_view rest = order;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string path = std::string(kModuleDirectory) + "/" + std::string(rest.substr(0, end));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    const UniqueFd file = sys::open_at(AT_FDCWD, path.c_str(), O_RDONLY);
    if (syscall(SYS_finit_module, file.get(), "", 0) < 0 && errno != EEXIST) {
      sys::throw_errno("loading " + path);
    }
    unlink(path.c_str());
  }
}

void wait_for_device(const char* path) {
  const UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch) sys::throw_errno("making an inotify instance");
  if (inotify_add_watch(watch.get(), "/dev", IN_CREATE) < 0) sys::throw_errno("watching /dev");
  const auto until = std::chrono::steady_clock::now() + kDevicePatience;
  while (access(path, F_OK) < 0) {
    pollfd entry{.fd = watch.get(), .events = POLLIN, .revents = 0};
    if (sys::poll_until({&entry, 1}, until) == 0) {
      sys::throw_error(ETIMEDOUT, std::string("waiting for ") + path);
    }
    alignas(inotify_event) char events[4096];
    while (read(watch.get(), events, sizeof events) > 0) {
    }
  }
}

void enter_machine_root() {
  mount_at("tmpfs", kNewRoot, MS_NOSUID | MS_NODEV, "mode=755,size=16m");
  const std::string root = kNewRoot;
  // What the keeper makes its template from, where the image is not of the machine itself.
  for (const char* name : {"/usr", "/etc", "/run", "/tmp"}) {
    sys::make_directory_at(AT_FDCWD, (root + name).c_str(), 0755);
  }
  for (const char* path : {"/proc", "/sys", "/dev"}) {
    sys::make_directory_at(AT_FDCWD, (root + path).c_str(), 0755);
    if (mount(path, (root + path).c_str(), nullptr, MS_MOVE, nullptr) < 0) {
      sys::throw_errno(std::string("moving ") + path);
    }
  }
  const std::string image = root + kImageDirectory;
  sys::make_directory_at(AT_FDCWD, image.c_str(), 0755);
  const std::string device = root + kImageDevice;
  if (mount(device.c_str(), image.c_str(), "squashfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "") < 0) {
    sys::throw_errno("mounting the image");
  }
  if (chdir(kNewRoot) < 0 || mount(".", "/", nullptr, MS_MOVE, nullptr) < 0 || chroot(".") < 0 ||
      chdir("/") < 0) {
    sys::throw_errno("entering the machine's root");
  }
}

MachineGroups make_machine_groups(std::uint64_t memory_bytes, std::uint64_t processes,
                                  std::uint64_t cpu_millis) {
  mount_at("cgroup2", kControlGroups, MS_NOSUID | MS_NODEV | MS_NOEXEC);
  const std::string root = kControlGroups;
  const std::string sandbox = root + "/sandbox";
  const std::string agent = sandbox + "/agent";
  const std::string programs = sandbox + "/programs";
  write_file(root + "/cgroup.subtree_control", "+memory +pids +cpu");
  sys::make_directory_at(AT_FDCWD, sandbox.c_str(), 0755);
  if (memory_bytes != 0) write_file(sandbox + "/memory.max", std::to_string(memory_bytes));
  write_file(sandbox + "/cgroup.subtree_control", "+memory +pids +cpu");
  sys::make_directory_at(AT_FDCWD, agent.c_str(), 0755);
  sys::make_directory_at(AT_FDCWD, programs.c_str(), 0755);
  if (processes != 0) write_file(programs + "/pids.max", std::to_string(processes));
  if (cpu_millis != 0) {
    write_file(programs + "/cpu.max", std::to_string(cpu_millis * kPeriodMicroseconds / 1000) +
                                          " " + std::to_string(kPeriodMicroseconds));
  }
  const auto opened = [](const std::string& path, int flags) {
    return sys::open_at(AT_FDCWD, path.c_str(), flags);
  };
  return {.agent = opened(agent + "/cgroup.procs", O_WRONLY),
          .programs = {.members = opened(programs + "/cgroup.procs", O_WRONLY),
                       .memory_events = opened(sandbox + "/memory.events", O_RDONLY),
                       .fork_events = opened(programs + "/pids.events", O_RDONLY)}};
}

void set_randomness_and_clock(const MachineStart& start) {
  const UniqueFd device = sys::open_at(AT_FDCWD, "/dev/random", O_RDWR);
  // rand_pool_info, whose last member has no size.
  struct {
    int entropy_count = 8 * static_cast<int>(kSeedBytes);
    int buf_size = static_cast<int>(kSeedBytes);
    unsigned char bytes[kSeedBytes]{};
  } entropy;
  static_assert(offsetof(decltype(entropy), bytes) == sizeof(rand_pool_info));
  std::memcpy(entropy.bytes, start.seed, kSeedBytes);
  if (ioctl(device.get(), RNDADDENTROPY, &entropy) < 0) sys::throw_errno("seeding the generator");
  // Else numbers would come from what was there before the seed, for minutes.
  if (ioctl(device.get(), RNDRESEEDCRNG) < 0) sys::throw_errno("reseeding the generator");
  const timespec now{.tv_sec = start.seconds, .tv_nsec = start.nanoseconds};
  if (clock_settime(CLOCK_REALTIME, &now) < 0) sys::throw_errno("setting the clock");
}

}  // namespace casemate::guest
