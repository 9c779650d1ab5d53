#include "casemate/guest/agent/account_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <exception>
#include <vector>

#include "casemate/guest/agent/remove_tree.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::guest {
namespace {

// Where anybody may make files that are nobody else's.
constexpr const char* kTemporaryDirectories[] = {"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"};

// linux/posix_acl_xattr.h, for which there is no library in a small static program.
struct AclEntry {
  std::uint16_t tag;
  std::uint16_t permissions;
  std::uint32_t id;
};
struct Acl {
  std::uint32_t version;
  AclEntry entries[3];
};
constexpr std::uint32_t kNoId = ~std::uint32_t{0};
// Owner and group write, others read: instead of a umask.
constexpr Acl kShared{.version = 2,
                      .entries = {{0x01, 7, kNoId}, {0x04, 7, kNoId}, {0x20, 5, kNoId}}};

bool remove_owned(const char* path, unsigned user) {
  const sys::UniqueFd directory(
      open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!directory) return errno == ENOENT;
  bool gone = true;
  for (const std::string& name : sys::list_directory_at(directory.get(), ".")) {
    struct stat status{};
    if (fstatat(directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) continue;
    if (status.st_uid == user && remove_tree(directory.get(), name) != 0) gone = false;
  }
  return gone;
}

}  // namespace

void share_directory(const std::string& path, unsigned group, unsigned mode) {
  const sys::UniqueFd directory =
      sys::open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (fchown(directory.get(), 0, group) < 0) sys::throw_errno("giving away " + path);
  // Who is in none of the directory's groups and has no FSETID loses that bit without an error.
  constexpr gid_t kSame = static_cast<gid_t>(-1);
  if (syscall(SYS_setresgid, kSame, group, kSame) < 0) sys::throw_errno("changing group");
  const int changed = fchmod(directory.get(), S_ISGID | mode);
  const int error = errno;
  if (syscall(SYS_setresgid, kSame, 0, kSame) < 0) sys::throw_errno("changing group");
  if (changed < 0) sys::throw_error(error, "opening " + path);
  // Without it the umask decides, and what one call makes the next may only read.
  if (fsetxattr(directory.get(), "system.posix_acl_default", &kShared, sizeof kShared, 0) < 0 &&
      errno != EOPNOTSUPP) {
    sys::throw_errno("sharing " + path);
  }
}

bool remove_temporary_files(unsigned user) noexcept {
  bool gone = true;
  for (const char* path : kTemporaryDirectories) {
    try {
      gone = remove_owned(path, user) && gone;
    } catch (const std::exception&) {
      gone = false;
    }
  }
  return gone;
}

// The kernel's tables, from one end to the other; what is not the caller's stays.
void remove_ipc_objects() noexcept {
  shm_info memory{};
  const int last_memory = shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&memory));
  for (int index = 0; index <= last_memory; ++index) {
    shmid_ds found{};
    const int id = shmctl(index, SHM_STAT_ANY, &found);
    if (id >= 0) shmctl(id, IPC_RMID, nullptr);
  }
  seminfo semaphores{};
  const int last_semaphore = semctl(0, 0, SEM_INFO, &semaphores);
  for (int index = 0; index <= last_semaphore; ++index) {
    semid_ds found{};
    const int id = semctl(index, 0, SEM_STAT_ANY, &found);
    if (id >= 0) semctl(id, 0, IPC_RMID);
  }
  msginfo queues{};
  const int last_queue = msgctl(0, MSG_INFO, reinterpret_cast<msqid_ds*>(&queues));
  for (int index = 0; index <= last_queue; ++index) {
    msqid_ds found{};
    const int id = msgctl(index, MSG_STAT_ANY, &found);
    if (id >= 0) msgctl(id, IPC_RMID, nullptr);
  }
}

}  // namespace casemate::guest
