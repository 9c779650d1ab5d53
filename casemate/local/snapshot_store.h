#pragma once

// Snapshots as files: snapshots/<id> in the state directory, each the source's record and what its
// guest sent, which is looked at by no one here. Who took it holds a shared lock on its file until
// it lets go of it; a file that nobody holds was left: it is over, and the next sweep removes it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/local/state_directory.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {

// What snapshots leave free of a file system of that many bytes: it is often that of /run, which
// everything on a machine needs, and how much they take is chosen by guests.
constexpr std::uint64_t snapshot_reserve(std::uint64_t file_system_bytes) {
  return std::min(file_system_bytes / 4, std::uint64_t{1} << 30);
}

// One that is being taken; gone again unless it was kept. For one thread.
class NewSnapshot {
 public:
  // Under a fresh id in that directory. Throws `SandboxUnavailable` where there are `most` already,
  // of whomever, `std::system_error`.
  NewSnapshot(const sys::UniqueFd& directory, const Record& source, std::size_t most);
  ~NewSnapshot();
  NewSnapshot(const NewSnapshot&) = delete;
  NewSnapshot& operator=(const NewSnapshot&) = delete;

  const std::string& id() const { return id_; }
  std::uint64_t bytes() const { return bytes_; }
  // Throws `SandboxUnavailable` where too little would be left for others (`snapshot_reserve`),
  // `std::system_error`.
  void append(std::string_view bytes);
  // It is whole: from now on it lives as long as the lock that is returned. Absent when somebody
  // disposed it meanwhile.
  std::optional<FileLock> keep();

 private:
  explicit NewSnapshot(const sys::UniqueFd& directory);
  int directory_;
  std::string id_;
  sys::UniqueFd file_;
  std::optional<FileLock> lock_;
  std::uint64_t bytes_ = 0;
};

// One that is there, to be read from its beginning. A disposal does not wait for it: then it ends
// early.
class KeptSnapshot {
 public:
  // Absent when there is none of that id, when it is over, also by its process's end, or not this
  // build's.
  static std::optional<KeptSnapshot> open(const sys::UniqueFd& directory, std::string_view id);

  // The sandbox that it was taken of.
  const Record& source() const { return source_; }
  // False once somebody disposed it. Throws `std::system_error`.
  bool is_there() const;
  // The next bytes, at most `kMaxData`; none at the end. Throws `NoSuchSnapshot` when it was
  // disposed meanwhile, `std::system_error`.
  std::string next();

 private:
  KeptSnapshot(sys::UniqueFd file, Record source, std::uint64_t at, std::uint64_t size);
  sys::UniqueFd file_;
  Record source_;
  std::uint64_t at_;
  std::uint64_t size_;
};

// Those that this process took; they go with it, in its forked children they stay. Thread-safe.
class TakenSnapshots {
 public:
  TakenSnapshots() = default;
  ~TakenSnapshots();
  TakenSnapshots(const TakenSnapshots&) = delete;
  TakenSnapshots& operator=(const TakenSnapshots&) = delete;

  void put(const std::string& id, std::shared_ptr<const StateDirectory> place, FileLock lock);
  void forget(const std::string& id);

 private:
  struct Taken {
    std::shared_ptr<const StateDirectory> place;
    FileLock lock;
  };

  std::mutex mutex_;
  std::map<std::string, Taken> taken_;
  sys::OwnerProcess owner_;
};

// Removes each whose source is wanted, whoever holds it; what it took is free at once, also where
// it is being read.
void remove_snapshots(
    const sys::UniqueFd& directory,
    const std::function<bool(const std::string& id, const Record& source)>& wanted);
bool remove_snapshot(const sys::UniqueFd& directory, std::string_view id);
// Removes those that nobody holds any more.
void sweep_snapshots(const sys::UniqueFd& directory);

}  // namespace casemate::local
