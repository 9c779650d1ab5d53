#include "casemate/guest/agent/held_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "casemate/guest/protocol.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::guest {
namespace {

// Beside the FIFO until it takes its place.
constexpr char kAside[] = ".program";
constexpr char kImports[] = ".imports";

}  // namespace

HeldFile::HeldFile(const std::string& path, const std::vector<std::string>& imports, Place& place)
    : place_(place) {
  const std::size_t slash = path.rfind('/');
  const std::string parent = path.substr(0, slash);
  name_ = path.substr(slash + 1);
  if (mkdir(parent.c_str(), 0755) < 0) sys::throw_errno("making a held program's directory");
  directory_ = sys::open_at(AT_FDCWD, parent.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  place_.give_pipe(directory_.get());
  if (!imports.empty()) {
    std::string list;
    for (const std::string& name : imports) list += name + "\n";
    write_file(kImports, list);
  }
  if (mkfifoat(directory_.get(), name_.c_str(), 0644) < 0) sys::throw_errno("making a FIFO");
  fifo_ = sys::open_at(directory_.get(), name_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  place_.give_pipe(fifo_.get());
  // A user with many pipes gets them small.
  const int size = fcntl(fifo_.get(), F_SETPIPE_SZ, static_cast<int>(kMaxHeldSource));
  if (size < static_cast<int>(kMaxHeldSource)) sys::throw_errno("sizing a FIFO");
  opened_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!opened_ || inotify_add_watch(opened_.get(), path.c_str(), IN_OPEN | IN_DONT_FOLLOW) < 0) {
    sys::throw_errno("watching a FIFO");
  }
}

void HeldFile::stage(std::string_view source) { write_file(kAside, source); }

void HeldFile::write_file(const char* name, std::string_view content) {
  const sys::UniqueFd file =
      sys::open_at(directory_.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
  place_.give_pipe(file.get());
  sys::write_all(file.get(), content, "writing a held program's file");
}

void HeldFile::fill(std::string_view source) {
  if (renameat(directory_.get(), kAside, directory_.get(), name_.c_str()) < 0) {
    sys::throw_errno("putting a held program's file in its place");
  }
  if (!source.empty() &&
      write(fifo_.get(), source.data(), source.size()) != static_cast<ssize_t>(source.size())) {
    sys::throw_error(EIO, "handing over a held program's file");
  }
  fifo_.reset();
  opened_.reset();
}

}  // namespace casemate::guest
