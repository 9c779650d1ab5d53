#pragma once

// A file that others see whole or not at all.

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "casemate/sys/owner_process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

enum class Staging : std::uint8_t {
  unnamed,  // O_TMPFILE, `named` where the file system has none. Nothing is left if we are killed
  named,    // ".casemate-<16 hex>" beside the destination; its descriptor closes with `sync`
};

// A file being written in `directory`. Until `keep`, destroying it takes everything back: the
// staged bytes, the published name, what was replaced. Move-only, not thread-safe; in a forked
// child the destructor removes nothing. Every method but the noexcept ones throws
// `std::system_error`.
class StagedFile {
 public:
  // 0666 less the umask. `directory` may be an O_PATH descriptor; it is shared.
  explicit StagedFile(std::shared_ptr<const UniqueFd> directory,
                      Staging staging = Staging::unnamed);
  StagedFile(StagedFile&& other) noexcept;
  StagedFile& operator=(StagedFile&&) = delete;
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  ~StagedFile();

  void write(std::span<const char> bytes);
  // For whoever writes by another hand; open until this is destroyed, or until `sync` for `named`.
  int get() const { return file_.get(); }
  // Instead of what the umask made of it. Before `sync`.
  void set_mode(mode_t mode);
  // Bytes are on the disk when this returns. Call once, before a name is given.
  void sync();

  // Gives it `name`, a single component. EEXIST when anything has it, a dangling link included.
  void publish(const std::string& name);
  // Gives it `name` and sets aside what has it. A link is replaced itself; a directory is EISDIR.
  // On a file system that cannot exchange two names, what was replaced is gone at once.
  void replace(const std::string& name);

  // The name is final, and what was replaced is removed.
  void keep() noexcept;

 private:
  void name_temporarily();
  bool published_is_ours() const noexcept;
  void undo() noexcept;

  std::shared_ptr<const UniqueFd> directory_;
  UniqueFd file_;
  struct stat identity_{};
  std::string temporary_;        // a name of ours in the directory, or empty
  std::string published_;        // the destination once given, or empty
  bool holds_replaced_ = false;  // `temporary_` names what was at the destination
  OwnerProcess owner_;
};

// Says that files are staged in `directory` for as long as the result lives, and removes first what
// killed processes left staged there: files and links named as ours, of this user, while nobody
// else holds such a claim (a shared flock on the directory). Empty where the directory may not be
// read or somebody keeps it locked; nothing is removed then. Never throws.
UniqueFd claim_staging(int directory) noexcept;

// Has `fill` write a file, and calls it `name` in `directory` once it is whole and on the disk,
// name and all. False, and nothing is left of it, when something has that name by then. What `fill`
// throws leaves nothing either, nor does a kill at any instruction, but for what `claim_staging`
// removes the next time. Throws `std::system_error`.
bool write_whole_file(int directory, const std::string& name, mode_t mode,
                      const std::function<void(int file)>& fill);

// Has `name` in `directory` be a file of these bytes, on the disk, instead of what has that name.
// Thrown at, what was there stays. What a kill leaves, `claim_staging` removes the next time.
// Throws `std::system_error`.
void replace_whole_file(int directory, const std::string& name, std::string_view bytes);

// Makes names given in `directory` last through a power failure. Quiet where the file system has
// no such thing or the directory may not be opened for reading.
void sync_directory(int directory);

// Gives the directory `name` in `from` the name `free` in `to`, which nothing has: EEXIST,
// ENOTEMPTY or ENOTDIR. Where the file system cannot rename so (FUSE, NFS), an empty directory of
// that name is replaced. Throws `std::system_error`.
void rename_directory(int from, const std::string& name, int to, const std::string& free);

// Makes a directory `name` (0777 less the umask) in `directory`. False when something has that
// name already. Throws `std::system_error`.
bool make_directory(int directory, const std::string& name);
// Removes an empty directory; anything else is left as it is.
void remove_empty_directory(int directory, const std::string& name) noexcept;

}  // namespace casemate::sys
