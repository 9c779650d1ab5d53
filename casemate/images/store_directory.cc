#include "casemate/images/store_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/tree_writer.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/staged_file.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

// Held, for an instant, while a directory of new/ gets its own lock and while new/ is swept.
constexpr char kNewLock[] = "new.lock";
constexpr char kHint[] = "choose another image directory (ImageStoreOptions::directory)";

UniqueFd open_private(int parent, const std::string& path, const std::string& shown) {
  try {
    sys::make_directory_at(parent, path.c_str(), 0700);
    UniqueFd directory = sys::open_at(parent, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    const struct stat status = sys::status_of(directory.get());
    if (status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
      throw SandboxUnavailable(
          fmt::format("the image directory {} belongs to user {} with mode {:o}; only a directory "
                      "of this user's with mode 700 is accepted",
                      escape_for_display(shown), status.st_uid, status.st_mode & 07777),
          kHint);
    }
    return directory;
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(
        fmt::format("the image directory {}: {}", escape_for_display(shown), error.what()), kHint);
  }
}

void make_parents(const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1)) {
    try {
      sys::make_directory_at(AT_FDCWD, path.substr(0, end).c_str(), 0755);
    } catch (const std::system_error& error) {
      throw SandboxUnavailable(
          fmt::format("the image directory {}: {}", escape_for_display(path), error.what()), kHint);
    }
  }
}

UniqueFd open_root(const std::string& path) {
  if (!path.starts_with('/')) {
    throw InvalidArgument(fmt::format("the image directory '{}' is refused: an absolute path is "
                                      "accepted",
                                      escape_for_display(path)),
                          kHint);
  }
  make_parents(path);
  return open_private(AT_FDCWD, path, path);
}

UniqueFd open_lock(int directory, const std::string& name) {
  return sys::open_at(directory, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
}

}  // namespace

bool try_lock(int file, LockKind kind) {
  const int operation = kind == LockKind::shared ? LOCK_SH : LOCK_EX;
  if (flock(file, operation | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK && errno != EINTR) sys::throw_errno("locking");
  return false;
}

UniqueFd open_part_of_store(const std::string& store, const std::string& part) {
  const UniqueFd root = open_root(store);
  return open_private(root.get(), part, store + "/" + part);
}

StoreDirectory::StoreDirectory(const std::string& path) {
  root_ = open_root(path);
  const auto open_inner = [&](const char* name) {
    return open_private(root_.get(), name, path + "/" + name);
  };
  images_ = open_inner("images");
  references_ = open_inner("references");
  new_ = open_inner("new");
  trash_ = open_inner("trash");
  locks_ = open_inner("locks");
}

UniqueFd StoreDirectory::lock(const std::string& name, const CallControl& control) const {
  UniqueFd file = open_lock(locks_.get(), name);
  // The kernel has no lock that waits with a bound.
  std::chrono::milliseconds pause{1};
  while (!try_lock(file.get(), LockKind::exclusive)) {
    if (control.stop.stop_requested()) {
      throw SandboxCancelled("cancelled while another process imports an image");
    }
    const auto now = std::chrono::steady_clock::now();
    if (control.deadline && now >= *control.deadline) {
      throw SandboxTimeout("the deadline came while another process imports an image");
    }
    auto until = now + pause;
    if (control.deadline) until = std::min(until, *control.deadline);
    sys::poll_until({}, until);
    pause = std::min(pause * 2, std::chrono::milliseconds{50});
  }
  return file;
}

void StoreDirectory::sweep() const {
  {
    const UniqueFd guard = lock(kNewLock, {});
    for (const std::string& name : sys::list_directory_at(new_.get(), ".")) {
      const UniqueFd directory(
          openat(new_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!directory || !try_lock(directory.get(), LockKind::exclusive)) continue;
      // Two sweeps of the trash may meet; its names are never used twice.
      if (renameat(new_.get(), name.c_str(), trash_.get(), random_hex(8).c_str()) < 0) {
        sys::throw_errno("clearing the image directory");
      }
    }
  }
  for (const std::string& name : sys::list_directory_at(trash_.get(), ".")) {
    remove_entry(trash_.get(), name);
  }
  for (const UniqueFd* part : {&root_, &references_}) sys::claim_staging(part->get());
}

void StoreDirectory::discard_image(const std::string& name) const {
  const std::string gone = random_hex(8);
  if (renameat(images_.get(), name.c_str(), trash_.get(), gone.c_str()) < 0) {
    if (errno == ENOENT) return;
    sys::throw_errno("removing an image");
  }
  remove_entry(trash_.get(), gone);
}

NewDirectory::NewDirectory(const StoreDirectory& store)
    : store_(store), name_(random_hex(8)), owner_(getpid()) {
  const UniqueFd guard = store.lock(kNewLock, {});
  sys::make_directory_at(store.new_.get(), name_.c_str(), 0700);
  directory_ = sys::open_at(store.new_.get(), name_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!try_lock(directory_.get(), LockKind::exclusive)) {
    sys::throw_error(EWOULDBLOCK, "locking a new directory");
  }
}

NewDirectory::~NewDirectory() {
  // In a forked child it is the parent's.
  if (name_.empty() || owner_ != getpid()) return;
  try {
    const std::string gone = random_hex(8);
    if (renameat(store_.new_.get(), name_.c_str(), store_.trash(), gone.c_str()) == 0) {
      remove_entry(store_.trash(), gone);
    }
  } catch (const std::exception&) {
    // The next sweep tries again.
  }
}

void NewDirectory::publish(const std::string& name) {
  // The whole file system at once: an image has more files than a sync each would be quick for.
  if (syncfs(directory_.get()) < 0) sys::throw_errno("writing an image to disk");
  sys::rename_directory(store_.new_.get(), name_, store_.images(), name);
  name_.clear();
  sys::sync_directory(store_.images());
}

}  // namespace casemate::images
