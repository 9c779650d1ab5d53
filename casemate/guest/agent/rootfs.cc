#include "casemate/guest/agent/rootfs.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

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
    "alternatives", "ca-certificates", "debian_version", "fonts",        "gai.conf",
    "host.conf",    "ld.so.cache",     "ld.so.conf",     "ld.so.conf.d", "locale.alias",
    "localtime",    "magic",           "magic.mime",     "mailcap",      "mime.types",
    "os-release",   "protocols",       "services",       "terminfo",     "timezone",
};
// Only these parts of directories that also hold private keys.
constexpr const char* kEtcNested[] = {"ssl/certs", "ssl/openssl.cnf", "pki/tls/certs",
                                      "pki/ca-trust/extracted"};
constexpr std::string_view kEtcPrefix = "python3";

constexpr const char* kDeviceNames[] = {"null", "zero", "full", "random", "urandom"};

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

void make_link(int root, const char* target, const char* path) {
  if (symlinkat(target, root, path) < 0) sys::throw_errno(std::string("linking ") + path);
}

// Builds one root, everything by name below two descriptors: the machine's root and the new one.
class RootBuilder {
 public:
  explicit RootBuilder(const RootPlan& plan) : plan_(plan) {}

  void build() {
    sys::make_all_private();
    host_ = sys::open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
    root_ = sys::make_tmpfs({.size = 4 << 20, .inodes = 4096, .mode = 0755}, {});
    // Any directory will do that is always there and from which nothing is taken.
    sys::attach(root_.get(), host_.get(), "proc");
    add_programs();
    add_etc();
    add_devices();
    add_quota();
    add_support();
    make_directory(root_.get(), "proc", 0555);
    const UniqueFd proc = sys::make_proc();
    sys::attach(proc.get(), root_.get(), "proc");
    for (const char* name : {"run", "var", "root"}) make_directory(root_.get(), name, 0755);
    make_link(root_.get(), "/tmp", "var/tmp");
    make_directory(root_.get(), "tmp", 01777);
    sys::restrict_mount(root_.get(), kReadOnly);
    sys::replace_root(root_.get());
  }

 private:
  // A read-only view of a file or directory of the machine's, or a copy of the link that it is.
  void show(const char* path) {
    const auto status = status_of(host_.get(), path);
    if (!status) return;
    if (S_ISLNK(status->st_mode)) {
      char target[PATH_MAX];
      const ssize_t length = readlinkat(host_.get(), path, target, sizeof target - 1);
      if (length < 0) sys::throw_errno(std::string("reading the link ") + path);
      target[length] = '\0';
      make_link(root_.get(), target, path);
      return;
    }
    if (S_ISDIR(status->st_mode)) {
      make_directory(root_.get(), path, 0755);
    } else if (S_ISREG(status->st_mode)) {
      sys::write_file_at(root_.get(), path, "", 0644);
    } else {
      return;
    }
    const UniqueFd tree = sys::clone_tree(host_.get(), path);
    sys::restrict_tree(tree.get(), kReadOnly);
    sys::attach(tree.get(), root_.get(), path);
  }

  void add_programs() {
    show("usr");
    for (const char* name : kTopNames) show(name);
  }

  void add_etc() {
    make_directory(root_.get(), "etc", 0755);
    for (const char* name : kEtcNames) show((std::string("etc/") + name).c_str());
    for (const char* name : kEtcNested) {
      const std::string path = std::string("etc/") + name;
      if (!status_of(host_.get(), path.c_str())) continue;
      make_parents(path);
      show(path.c_str());
    }
    for (const std::string& name : sys::list_directory_at(host_.get(), "etc")) {
      if (name.starts_with(kEtcPrefix)) show(("etc/" + name).c_str());
    }
    for (const EtcFile& file : kOwnEtcFiles) {
      sys::write_file_at(root_.get(), (std::string("etc/") + file.name).c_str(), file.content,
                         0644);
    }
    sys::write_file_at(root_.get(), "etc/machine-id", new_machine_id(), 0444);
  }

  void add_devices() {
    make_directory(root_.get(), "dev", 0755);
    for (const char* name : kDeviceNames) {
      const std::string path = std::string("dev/") + name;
      sys::write_file_at(root_.get(), path.c_str(), "", 0644);
      sys::bind(host_.get(), path.c_str(), root_.get(), path.c_str());
    }
    make_link(root_.get(), "/proc/self/fd", "dev/fd");
    make_link(root_.get(), "/proc/self/fd/0", "dev/stdin");
    make_link(root_.get(), "/proc/self/fd/1", "dev/stdout");
    make_link(root_.get(), "/proc/self/fd/2", "dev/stderr");
    make_directory(root_.get(), "dev/shm", 01777);
  }

  void add_quota() {
    const UniqueFd quota =
        sys::make_tmpfs({.size = plan_.disk_bytes, .inodes = plan_.disk_inodes, .mode = 0700}, {});
    make_directory(root_.get(), &kQuotaDirectory[1], 0700);
    sys::attach(quota.get(), root_.get(), &kQuotaDirectory[1]);
    make_directory(quota.get(), "workspace", 01777);
    make_directory(quota.get(), "home", 0755, kUserId);
    make_directory(quota.get(), "calls", 0700);
    make_directory(root_.get(), "home", 0755);
    make_directory(root_.get(), "home/user", 0755);
    sys::bind(quota.get(), "home", root_.get(), "home/user");
    const std::string work_dir = plan_.work_dir.substr(1);
    make_parents(work_dir);
    sys::make_directory_at(root_.get(), work_dir.c_str(), 0755);
    sys::bind(quota.get(), "workspace", root_.get(), work_dir.c_str());
  }

  // `path` is relative to the new root.
  void make_parents(const std::string& path) {
    for (std::size_t end = path.find('/'); end != std::string::npos;
         end = path.find('/', end + 1)) {
      sys::make_directory_at(root_.get(), path.substr(0, end).c_str(), 0755);
    }
  }

  void add_support() {
    make_directory(root_.get(), "casemate", 0755);
    make_directory(root_.get(), "casemate/python", 0755);
    for (const SupportFile& file : support_files()) {
      sys::write_file_at(root_.get(), (std::string("casemate/python/") + file.name).c_str(),
                         file.content, 0444);
    }
  }

  const RootPlan& plan_;
  UniqueFd host_;
  UniqueFd root_;
};

}  // namespace

void build_root(const RootPlan& plan) { RootBuilder(plan).build(); }

}  // namespace casemate::guest
