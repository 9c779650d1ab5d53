#pragma once

// Bounds on what moves in and out of a sandbox and on what it may use.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/core/vocabulary.h"

namespace casemate {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// Caps of one direction: bytes of one file, bytes in all, number of files. Equality passes. No
// validation at construction; a 0 in a backend's *declaration* is malformed.
struct TransferLimits {
  std::uint64_t max_bytes_per_file = 8 * kMiB;
  std::uint64_t max_total_bytes = 32 * kMiB;
  std::uint64_t max_files = 64;

  // True when every field is at most the ceiling's.
  bool within(const TransferLimits& ceiling) const;
  friend bool operator==(const TransferLimits&, const TransferLimits&) = default;
};

// 8 MiB a file, 32 MiB, 64 files: the reference's DEFAULT_TRANSFER_LIMITS.
inline constexpr TransferLimits kDefaultTransferLimits{};

struct SandboxLimits {
  TransferLimits files_in{};
  TransferLimits files_out{};
  friend bool operator==(const SandboxLimits&, const SandboxLimits&) = default;
};

// One resource bound: its value and whether the caller stated it. A stated bound that a backend
// cannot hold is refused (`SandboxLimitNotEnforceable`); a default that cannot be held runs and
// shows in `limits_not_held`.
struct ResourceLimit {
  std::uint64_t value = 0;
  bool stated = false;
  friend bool operator==(const ResourceLimit&, const ResourceLimit&) = default;
};

// A bound that the caller states.
ResourceLimit stated(std::uint64_t value);

// What a sandbox may use. Counted for the sandbox; pids and counters for the call. Files on the
// quota do not eat the memory: the kernel's bound is memory + disk_bytes.
struct Resources {
  ResourceLimit memory_bytes{512 * kMiB};
  ResourceLimit pids{128};
  // Thousandths of a processor, so that 0.5 is exact.
  ResourceLimit cpu_millis{1000};
  // Processor seconds of one call; absent is no bound.
  std::optional<ResourceLimit> cpu_seconds{};
  ResourceLimit disk_bytes{256 * kMiB};
  ResourceLimit disk_inodes{65536};
  ResourceLimit open_files{1024};
  friend bool operator==(const Resources&, const Resources&) = default;
};

// Below these nothing can work (surface section 5 for the first three; the kernel's scheduler for
// processors, whose quota is at least a millisecond of its 100 ms period; an interpreter and its
// modules for the others). At the value passes, one less is refused.
inline constexpr std::uint64_t kMinMemoryBytes = 16 * kMiB;
inline constexpr std::uint64_t kMinDiskBytes = 1 * kMiB;
inline constexpr std::uint64_t kMinPids = 4;
inline constexpr std::uint64_t kMinCpuMillis = 10;
inline constexpr std::uint64_t kMinDiskInodes = 32;
inline constexpr std::uint64_t kMinOpenFiles = 16;
// Above these the kernel refuses the number or it is no bound: a signed sum of memory and disk,
// Linux's PID_MAX_LIMIT, its default fs.nr_open, more processors than it supports (8,192).
inline constexpr std::uint64_t kMaxBytes = 1024 * 1024 * 1024 * kGiB;
inline constexpr std::uint64_t kMaxPids = 4 * 1024 * 1024;
inline constexpr std::uint64_t kMaxOpenFiles = 1024 * 1024;
inline constexpr std::uint64_t kMaxCpuMillis = 8192 * 1000;
inline constexpr std::uint64_t kMaxCpuSeconds = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kMaxDiskInodes = std::uint64_t{1} << 32;
// The longest program timeout, in seconds.
inline constexpr std::uint64_t kMaxTimeoutSeconds = 7 * 24 * 3600;

// Throws `InvalidArgument` naming the field, the value and the range when a bound is outside what
// can work.
void check_resources(const Resources& resources);

// Counts files and bytes against caps. A tally is a value; copying starts an independent count.
// Not thread-safe.
class TransferTally {
 public:
  // `direction` ("files in", "files out") appears in refusals.
  TransferTally(TransferLimits limits, std::string direction);

  // Adds one file, checked in this order: bytes over the per-file cap (nothing is counted then),
  // one file more than `max_files`, total over `max_total_bytes`. Throws
  // `SandboxTransferCapExceeded` naming `name`, the number and the cap. Equality passes.
  void add(std::string_view name, std::uint64_t bytes);

  std::uint64_t files() const noexcept { return files_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  // Bytes left under the total.
  std::uint64_t remaining_bytes() const noexcept { return limits_.max_total_bytes - bytes_; }

 private:
  TransferLimits limits_;
  std::string direction_;
  std::uint64_t files_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace casemate
