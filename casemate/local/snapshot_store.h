#pragma once

// Snapshots as files: snapshots/<id> in the state directory, each the source's record and what its
// guest sent, which is looked at by no one here. Who took it holds a shared lock on its file until
// it lets go of it; a file that nobody holds was left, and the next sweep removes it.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/local/state_directory.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {

// One that is being taken; gone again unless it was kept. For one thread.
class NewSnapshot {
 public:
  // Under a fresh id in that directory. Throws `std::system_error`.
  NewSnapshot(const sys::UniqueFd& directory, const Record& source);
  ~NewSnapshot();
  NewSnapshot(const NewSnapshot&) = delete;
  NewSnapshot& operator=(const NewSnapshot&) = delete;

  const std::string& id() const { return id_; }
  std::uint64_t bytes() const { return bytes_; }
  // Throws `std::system_error`, for example ENOSPC.
  void append(std::string_view bytes);
  // It is whole: from now on it lives as long as the lock that is returned. Absent when somebody
  // disposed it meanwhile.
  std::optional<FileLock> keep();

 private:
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
  // Absent when there is none of that id, when it is over or not this build's.
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

// Those that this process took. Thread-safe.
class TakenSnapshots {
 public:
  void put(const std::string& id, FileLock lock);
  void forget(const std::string& id);

 private:
  std::mutex mutex_;
  std::map<std::string, FileLock> locks_;
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
