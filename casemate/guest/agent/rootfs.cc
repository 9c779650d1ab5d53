#include "casemate/guest/agent/rootfs.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/image_root.h"
#include "casemate/guest/agent/inode_reserve.h"
#include "casemate/guest/agent/support_files.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

constexpr sys::MountAttributes kReadOnly{.read_only = true};

// Directories of the machine's root that belong to the programs in /usr. On a merged system they
// are links into it.
constexpr const char* kTopNames[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

// What programs look for in /etc and what holds nothing of this machine's business.
constexpr const char* kEtcNames[] = {
    "alternatives", "debian_version", "fonts",        "gai.conf",   "host.conf",
    "ld.so.cache",  "ld.so.conf",     "ld.so.conf.d", "localtime",  "locale.alias",
    "magic",        "magic.mime",     "mailcap",      "mime.types", "os-release",
    "protocols",    "services",       "terminfo",     "timezone",
};
// Only these parts of directories that also hold private keys.
constexpr const char* kEtcNested[] = {"ssl/certs", "ssl/openssl.cnf", "pki/tls/certs",
                                      "pki/ca-trust/extracted"};
// Of python3, whose minor versions have a directory each. Trying the names takes a tenth of what
// reading all of /etc takes.
constexpr int kPythonVersions = 40;

struct Device {
  const char* name;
  unsigned minor;
};
// Major number 1, the memory devices: admin-guide/devices.txt of the kernel.
constexpr Device kDevices[] = {
    {"null", 3}, {"zero", 5}, {"full", 7}, {"random", 8}, {"urandom", 9}};

// Of the machine.
constexpr char kDevicesDirectory[] = "/dev";
// What a directory may hold to be copied rather than shown.
constexpr std::size_t kMaxCopiedEntries = 16;
constexpr off_t kMaxCopiedBytes = 512 * 1024;
// One block of the common file systems.
constexpr off_t kMaxCopiedDirectoryBytes = 4096;

constexpr std::size_t kMaxMountsBytes = 16 << 20;
constexpr std::string_view kBinfmt = "/proc/sys/fs/binfmt_misc ";

struct EtcFile {
  const char* name;
  const char* content;
};
constexpr EtcFile kOwnEtcFiles[] = {
    {"passwd",
     "root:x:0:0:root:/root:/usr/sbin/nologin\n"
     "user:x:1000:1000:user:/home/user:/bin/sh\n"
     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"},
    {"hostname", "sandbox\n"},
    // Answers in a call with egress; elsewhere nobody is there, which is found out at once.
    {"resolv.conf", "nameserver 127.0.0.1\n"},
    {"nsswitch.conf",
     "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
     "protocols: files\nservices: files\n"},
};

std::string new_machine_id() {
  unsigned char bytes[16];
  if (getentropy(bytes, sizeof bytes) < 0) sys::throw_errno("making a machine id");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text + "\n";
}

std::optional<struct stat> status_of(int directory, const char* path) {
  struct stat status{};
  if (fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0) return status;
  if (errno == ENOENT || errno == EACCES || errno == ENOTDIR) return std::nullopt;
  sys::throw_errno(std::string("looking at ") + path);
}

void make_directory(int root, const char* path, unsigned mode, unsigned owner = 0) {
  if (mkdirat(root, path, mode) < 0) sys::throw_errno(std::string("making ") + path);
  if (owner != 0 && fchownat(root, path, owner, owner, AT_SYMLINK_NOFOLLOW) < 0) {
    sys::throw_errno(std::string("giving away ") + path);
  }
}

// Of a path relative to `root`.
void make_parents(int root, const std::string& path) {
  for (std::size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    sys::make_directory_at(root, path.substr(0, end).c_str(), 0755);
  }
}

void make_link(int root, const char* target, const char* path) {
  if (symlinkat(target, root, path) < 0) sys::throw_errno(std::string("linking ") + path);
}

// Fills one template, everything by name below two descriptors: the machine's root and the new one.
class TemplateBuilder {
 public:
  TemplateBuilder(int host, int devices, int root) : host_(host), devices_(devices), root_(root) {}

  void build() {
    add_programs();
    add_etc();
    add_own();
  }

  TemplateDevices devices() const { return devices_kind_; }

  // Of the image whose root the first descriptor is.
  void build_image(std::string_view work_dir) {
    const std::vector<std::string> too_large = show_image(host_, root_, work_dir);
    add_own();
    for (const std::string& name : too_large) merge_image_directory(host_, root_, name);
  }

 private:
  void add_own() {
    add_own_etc();
    add_devices();
    add_support();
    // What each sandbox, or each call, mounts its own on.
    make_directory(root_, "proc", 0555);
    make_directory(root_, &kQuotaDirectory[1], 0700);
    make_directory(root_, "tmp", 01777);
    for (const char* name : {"home", "home/user", "run", "var", "root"}) {
      sys::make_directory_at(root_, name, 0755);
    }
    make_link(root_, "/tmp", "var/tmp");
  }

  // A copy of the file, link or small directory of the machine's, or a read-only view of it.
  void show(const std::string& path) {
    const auto status = status_of(host_, path.c_str());
    if (!status) return;
    if (S_ISLNK(status->st_mode)) {
      copy_link(path);
    } else if (S_ISREG(status->st_mode)) {
      if (status->st_size <= kMaxCopiedBytes) {
        copy_file(path);
      } else {
        sys::write_file_at(root_, path.c_str(), "", 0644);
        view(path);
      }
    } else if (S_ISDIR(status->st_mode)) {
      make_directory(root_, path.c_str(), 0755);
      if (is_small(path, *status)) {
        for (const std::string& name : sys::list_directory_at(host_, path.c_str())) {
          show(path + "/" + name);
        }
      } else {
        view(path);
      }
    }
  }

  void view(const std::string& path) {
    const UniqueFd tree = sys::clone_tree(host_, path.c_str());
    sys::restrict_tree(tree.get(), kReadOnly);
    sys::attach(tree.get(), root_, path.c_str());
  }

  void copy_link(const std::string& path) {
    char target[PATH_MAX];
    const ssize_t length = readlinkat(host_, path.c_str(), target, sizeof target - 1);
    if (length < 0) sys::throw_errno("reading the link " + path);
    target[length] = '\0';
    make_link(root_, target, path.c_str());
  }

  // What is not readable for everybody is not shown: this process could read it.
  void copy_file(const std::string& path) {
    const auto status = status_of(host_, path.c_str());
    if (!status || (status->st_mode & S_IROTH) == 0) return;
    sys::write_file_at(root_, path.c_str(), sys::read_file_at(host_, path.c_str(), kMaxCopiedBytes),
                       0444);
  }

  // Only files and links, and few. Reading a large directory takes longer than showing it.
  bool is_small(const std::string& path, const struct stat& directory) {
    if (directory.st_size > kMaxCopiedDirectoryBytes) return false;
    const std::vector<std::string> names = sys::list_directory_at(host_, path.c_str());
    if (names.size() > kMaxCopiedEntries) return false;
    off_t bytes = 0;
    for (const std::string& name : names) {
      const auto status = status_of(host_, (path + "/" + name).c_str());
      if (!status || S_ISDIR(status->st_mode)) return false;
      bytes += status->st_size;
    }
    return bytes <= kMaxCopiedBytes;
  }

  void add_programs() {
    make_directory(root_, "usr", 0755);
    view("usr");
    for (const char* name : kTopNames) {
      const auto status = status_of(host_, name);
      if (!status) continue;
      if (S_ISLNK(status->st_mode)) {
        copy_link(name);
      } else if (S_ISDIR(status->st_mode)) {
        make_directory(root_, name, 0755);
        view(name);
      }
    }
  }

  void add_etc() {
    make_directory(root_, "etc", 0755);
    for (const char* name : kEtcNames) show(std::string("etc/") + name);
    for (const char* name : kEtcNested) {
      const std::string path = std::string("etc/") + name;
      if (!status_of(host_, path.c_str())) continue;
      make_parents(root_, path);
      show(path);
    }
    show("etc/python3");
    for (int minor = 0; minor < kPythonVersions; ++minor) {
      show("etc/python3." + std::to_string(minor));
    }
  }

  void add_own_etc() {
    for (const EtcFile& file : kOwnEtcFiles) {
      sys::write_file_at(root_, (std::string("etc/") + file.name).c_str(), file.content, 0644);
    }
    // Each sandbox mounts its own on it.
    sys::write_file_at(root_, "etc/machine-id", "", 0444);
  }

  void add_devices() {
    make_directory(root_, "dev", 0755);
    for (const Device& device : kDevices) {
      const std::string path = std::string("dev/") + device.name;
      if (mknodat(root_, path.c_str(), S_IFCHR | 0666, makedev(1, device.minor)) == 0) continue;
      // A container's root may not make devices; the machine's own can still be shown.
      devices_kind_ = TemplateDevices::views;
      sys::write_file_at(root_, path.c_str(), "", 0644);
      const sys::UniqueFd tree = sys::clone_tree(devices_, device.name);
      sys::restrict_mount(tree.get(), {.read_only = true, .no_dev = false, .no_exec = true});
      sys::attach(tree.get(), root_, path.c_str());
    }
    make_link(root_, "/proc/self/fd", "dev/fd");
    make_link(root_, "/proc/self/fd/0", "dev/stdin");
    make_link(root_, "/proc/self/fd/1", "dev/stdout");
    make_link(root_, "/proc/self/fd/2", "dev/stderr");
    make_directory(root_, "dev/shm", 01777);
    // Each call mounts its own.
    make_directory(root_, "dev/pts", 0755);
    make_link(root_, "pts/ptmx", "dev/ptmx");
  }

  void add_support() {
    make_directory(root_, "casemate", 0755);
    make_directory(root_, "casemate/bin", 0755);
    make_directory(root_, "casemate/python", 0755);
    make_directory(root_, &kCallDirectory[1], 0755);
    make_directory(root_, "casemate/python/__pycache__", 0755);
    for (const SupportFile& file : support_files()) {
      sys::write_file_at(root_, (std::string("casemate/") + file.path).c_str(), file.content,
                         file.mode);
    }
  }

  int host_;
  // The machine's /dev, by a descriptor from before the template lay over it.
  int devices_;
  int root_;
  TemplateDevices devices_kind_ = TemplateDevices::nodes;
};

}  // namespace

namespace {

UniqueFd attach_template(const char* place) {
  UniqueFd root =
      sys::make_tmpfs({.size = 16 << 20, .inodes = 8192, .mode = 0755}, {.no_dev = false});
  sys::attach(root.get(), AT_FDCWD, place);
  return root;
}

}  // namespace

const char* template_directory() {
  static const char* const directory = [] {
    struct stat status{};
    const bool is_there = lstat(kContainerTemplate, &status) == 0 && S_ISDIR(status.st_mode);
    return is_there ? kContainerTemplate : kDevicesDirectory;
  }();
  return directory;
}

RootTemplate::RootTemplate(const char* place) : place_(place) {
  if (unshare(CLONE_NEWNS) < 0) sys::throw_errno("making a mount namespace");
  // What the machine mounts or drops later is followed; nothing made here reaches it.
  sys::make_all_slave();
  const UniqueFd host = sys::open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
  devices_ = sys::open_at(AT_FDCWD, kDevicesDirectory, O_PATH | O_DIRECTORY);
  root_ = attach_template(place_);
  TemplateBuilder builder(host.get(), devices_.get(), root_.get());
  builder.build();
  devices_kind_ = builder.devices();
}

void RootTemplate::add_work_dir(const std::string& path) {
  make_parents(root_.get(), path.substr(1));
  sys::make_directory_at(root_.get(), path.substr(1).c_str(), 0755);
}

ImageTemplate::ImageTemplate(const RootTemplate& beside, int image, const std::string& work_dir)
    : place_(beside.place_), attached_(attach_template(place_)) {
  try {
    const UniqueFd opened = reopen_image(image);
    TemplateBuilder(opened.get(), beside.devices_.get(), attached_.get()).build_image(work_dir);
    make_parents(attached_.get(), work_dir.substr(1));
    sys::make_directory_at(attached_.get(), work_dir.substr(1).c_str(), 0755);
  } catch (...) {
    detach();
    throw;
  }
}

ImageTemplate::~ImageTemplate() { detach(); }

void ImageTemplate::detach() noexcept { umount2(place_, MNT_DETACH | UMOUNT_NOFOLLOW); }

namespace {

// What a sandbox takes of inotify is counted for the host's user that made it, whose own share is
// 128 instances by default (fs.inotify.max_user_instances): without a bound of its own one program
// would leave none to that user's services and other sandboxes.
void bound_inotify(int proc) {
  try {
    sys::write_control_file_at(proc, "sys/user/max_inotify_instances", "16");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::no_such_file_or_directory) throw;  // a kernel without inotify
  }
}

}  // namespace

bool proc_is_covered() {
  const std::string mounts = sys::read_file_at(AT_FDCWD, "/proc/self/mountinfo", kMaxMountsBytes);
  // The fifth field is where; the kernel itself has an empty place for the one that is passed over.
  for (std::size_t at = mounts.find(" /proc/"); at != mounts.npos;
       at = mounts.find(" /proc/", at + 1)) {
    const std::string_view line = std::string_view(mounts).substr(mounts.rfind('\n', at) + 1);
    const std::string_view before = line.substr(0, at - (mounts.rfind('\n', at) + 1));
    const bool is_place = std::ranges::count(before, ' ') == 3;
    if (is_place && !std::string_view(mounts).substr(at + 1).starts_with(kBinfmt)) return true;
  }
  return false;
}

namespace {

// One tmpfs behind all that can be written.
void add_quota(int root, const RootPlan& plan) {
  const UniqueFd quota =
      sys::make_tmpfs({.size = plan.disk_bytes,
                       .inodes = plan.disk_inodes + kReservedInodes + 1,  // 1: its directory
                       .mode = 0700},
                      {});
  make_directory(quota.get(), "workspace", 01777);
  make_directory(quota.get(), "home", 0755, kUserId);
  make_directory(quota.get(), "calls", 0700);
  sys::write_file_at(quota.get(), "machine-id", new_machine_id(), 0444);
  sys::attach(quota.get(), root, &kQuotaDirectory[1]);
  sys::bind(quota.get(), "home", root, &kHomeDirectory[1]);
  const UniqueFd machine_id = sys::clone_tree(quota.get(), "machine-id");
  sys::restrict_mount(machine_id.get(), kReadOnly);
  sys::attach(machine_id.get(), root, "etc/machine-id");
  sys::bind(quota.get(), "workspace", root, plan.work_dir.substr(1).c_str());
}

}  // namespace

void furnish_root(const RootPlan& plan) {
  sys::make_all_private();
  const UniqueFd root = sys::open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
  add_quota(root.get(), plan);
  // What one call mounts in it keeps every other from taking that name away (linux_place.cc).
  if (plan.one_id) sys::share_mount(plan.work_dir.c_str());
}

void furnish_container(const RootPlan& plan) {
  furnish_root(plan);
  const UniqueFd proc = sys::open_at(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY);
  bound_inotify(proc.get());
}

void enter_root(UniqueFd proc) {
  const UniqueFd tree = sys::clone_tree(AT_FDCWD, template_directory());
  sys::restrict_mount(tree.get(), {.read_only = true, .no_dev = false});
  // Any directory will do that is always there and from which nothing is taken.
  sys::attach(tree.get(), AT_FDCWD, "/proc");
  if (!proc) proc = sys::make_proc();
  sys::attach(proc.get(), tree.get(), "proc");
  bound_inotify(proc.get());
  sys::replace_root(tree.get());
}

}  // namespace casemate::guest
