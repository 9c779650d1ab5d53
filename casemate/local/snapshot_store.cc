#include "casemate/local/snapshot_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/guest/frame.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::local {

using sys::UniqueFd;

namespace {

constexpr std::size_t kIdBytes = 16;
// Of the record in front: its length in decimal digits and a line feed.
constexpr std::size_t kLengthBytes = 9;
constexpr std::size_t kMaxRecordBytes = 16 << 20;
// A sweep may take a file away between its making and its locking.
constexpr int kTries = 100;

bool is_snapshot_id(std::string_view id) {
  return id.size() == 2 * kIdBytes &&
         id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct stat status_of(const UniqueFd& file) {
  struct stat status{};
  if (fstat(file.get(), &status) < 0) sys::throw_errno("looking at a snapshot");
  return status;
}

bool is_gone(const UniqueFd& file) { return status_of(file).st_nlink == 0; }

UniqueFd open_snapshot(const UniqueFd& directory, std::string_view id, int flags) {
  if (!is_snapshot_id(id)) return {};
  UniqueFd file(openat(directory.get(), std::string(id).c_str(),
                       flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno != ENOENT && errno != ELOOP) sys::throw_errno("opening a snapshot");
  return file;
}

// Whether nobody holds it: its process has ended.
bool is_left(const UniqueFd& directory, std::string_view id) {
  UniqueFd file = open_snapshot(directory, id, O_RDONLY);
  return file && FileLock::attempt(std::move(file), FileLock::Kind::exclusive);
}

// Up to `size` bytes; fewer at the file's end.
std::string read_at(const UniqueFd& file, std::uint64_t at, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got =
        pread(file.get(), bytes.data() + have, size - have, static_cast<off_t>(at + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) sys::throw_errno("reading a snapshot");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

struct Header {
  Record source;
  std::uint64_t end = 0;
};

std::optional<Header> read_header(const UniqueFd& file) {
  const std::string length = read_at(file, 0, kLengthBytes);
  if (length.size() != kLengthBytes || length.back() != '\n' ||
      length.find_first_not_of("0123456789") != kLengthBytes - 1) {
    return std::nullopt;
  }
  const std::size_t size = std::stoul(length);
  if (size > kMaxRecordBytes) return std::nullopt;
  std::optional<Record> source = decode_record(read_at(file, kLengthBytes, size));
  if (!source) return std::nullopt;
  return Header{.source = *std::move(source), .end = kLengthBytes + size};
}

}  // namespace

NewSnapshot::NewSnapshot(const UniqueFd& directory) : directory_(directory.get()) {
  for (int tries = 0; !lock_; ++tries) {
    if (tries == kTries) sys::throw_error(EAGAIN, "making a snapshot's file");
    id_ = random_hex(kIdBytes);
    file_ = sys::open_at(directory_, id_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    UniqueFd same(fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
    if (!same) sys::throw_errno("duplicating a descriptor");
    auto lock = FileLock::attempt(std::move(same), FileLock::Kind::shared);
    if (lock && !is_gone(file_)) lock_.emplace(*std::move(lock));
  }
}

NewSnapshot::NewSnapshot(const UniqueFd& directory, const Record& source, std::size_t most)
    : NewSnapshot(directory) {
  // Its own among them, so that two that are taken at a time never make one too many.
  if (sys::list_directory_at(directory_, ".").size() > most) {
    throw SandboxUnavailable(
        fmt::format("there are {} snapshots, and the state directory holds no more", most),
        "dispose those that are no longer needed, or raise the backend's option max_snapshots");
  }
  const std::string record = encode_record(source);
  if (record.size() > kMaxRecordBytes) sys::throw_error(EFBIG, "writing a snapshot's record");
  append(fmt::format("{:08}\n", record.size()));
  append(record);
}

NewSnapshot::~NewSnapshot() {
  if (lock_) unlinkat(directory_, id_.c_str(), 0);
}

void NewSnapshot::append(std::string_view bytes) {
  struct statvfs place{};
  if (fstatvfs(file_.get(), &place) < 0) sys::throw_errno("looking for room for a snapshot");
  const std::uint64_t free = std::uint64_t{place.f_bavail} * place.f_frsize;
  const std::uint64_t reserve = snapshot_reserve(std::uint64_t{place.f_blocks} * place.f_frsize);
  if (free < reserve || free - reserve < bytes.size()) {
    throw SandboxUnavailable(
        fmt::format("the snapshot has no room: the state directory's file system has {} bytes "
                    "left, of which snapshots leave {} to others",
                    free, reserve),
        "dispose snapshots, or choose a state directory (state_dir) with more room");
  }
  bytes_ += bytes.size();
  sys::write_all(file_.get(), bytes, "writing a snapshot");
}

std::optional<FileLock> NewSnapshot::keep() {
  if (is_gone(file_)) return std::nullopt;
  std::optional<FileLock> kept = std::move(lock_);
  lock_.reset();
  return kept;
}

KeptSnapshot::KeptSnapshot(UniqueFd file, Record source, std::uint64_t at, std::uint64_t size)
    : file_(std::move(file)), source_(std::move(source)), at_(at), size_(size) {}

std::optional<KeptSnapshot> KeptSnapshot::open(const UniqueFd& directory, std::string_view id) {
  UniqueFd file = open_snapshot(directory, id, O_RDONLY);
  if (!file || is_left(directory, id)) return std::nullopt;
  std::optional<Header> header = read_header(file);
  if (!header) return std::nullopt;
  const auto size = static_cast<std::uint64_t>(status_of(file).st_size);
  return KeptSnapshot(std::move(file), std::move(header->source), header->end, size);
}

bool KeptSnapshot::is_there() const { return !is_gone(file_); }

std::string KeptSnapshot::next() {
  const auto size = std::min<std::uint64_t>(guest::kMaxData, size_ - std::min(at_, size_));
  std::string bytes = read_at(file_, at_, size);
  if (bytes.size() < size) {
    throw NoSuchSnapshot("the snapshot was disposed while it was restored", "take another");
  }
  at_ += size;
  return bytes;
}

TakenSnapshots::~TakenSnapshots() {
  if (!owner_.is_current()) return;
  for (const auto& [id, taken] : taken_) {
    try {
      remove_snapshot(taken.place->snapshots(), id);
    } catch (const std::exception&) {
      // The next sweep removes it.
    }
  }
}

void TakenSnapshots::put(const std::string& id, std::shared_ptr<const StateDirectory> place,
                         FileLock lock) {
  const std::lock_guard guard(mutex_);
  // By another process.
  std::erase_if(taken_, [](const auto& each) { return !each.second.lock.file_is_there(); });
  taken_.emplace(id, Taken{std::move(place), std::move(lock)});
}

void TakenSnapshots::forget(const std::string& id) {
  const std::lock_guard guard(mutex_);
  taken_.erase(id);
}

bool remove_snapshot(const UniqueFd& directory, std::string_view id) {
  const UniqueFd file = open_snapshot(directory, id, O_RDWR);
  // Its name first: a kill in between leaves nothing that could not be found any more.
  if (!file || unlinkat(directory.get(), std::string(id).c_str(), 0) < 0) return false;
  // Whoever has it open would keep all of it.
  if (ftruncate(file.get(), 0) < 0) sys::throw_errno("emptying a snapshot");
  return true;
}

void remove_snapshots(
    const UniqueFd& directory,
    const std::function<bool(const std::string& id, const Record& source)>& wanted) {
  for (const std::string& id : sys::list_directory_at(directory.get(), ".")) {
    const UniqueFd file = open_snapshot(directory, id, O_RDONLY);
    if (!file) continue;
    const std::optional<Header> header = read_header(file);
    if (header && wanted(id, header->source)) remove_snapshot(directory, id);
  }
}

void sweep_snapshots(const UniqueFd& directory) {
  for (const std::string& id : sys::list_directory_at(directory.get(), ".")) {
    if (is_left(directory, id)) remove_snapshot(directory, id);
  }
}

}  // namespace casemate::local
