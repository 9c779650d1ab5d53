#include "casemate/core/limits.h"

#include <fmt/format.h>

#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate {
namespace {

void check_range(std::string_view field, std::uint64_t value, std::uint64_t least,
                 std::uint64_t most, std::string_view unit) {
  if (value < least || value > most) {
    throw InvalidArgument(fmt::format("{} of {}{} cannot work: accepted are {} to {}{}", field,
                                      value, unit, least, most, unit),
                          fmt::format("choose another {} or leave it at its default", field));
  }
}

}  // namespace

bool TransferLimits::within(const TransferLimits& ceiling) const {
  return max_bytes_per_file <= ceiling.max_bytes_per_file &&
         max_total_bytes <= ceiling.max_total_bytes && max_files <= ceiling.max_files;
}

ResourceLimit stated(std::uint64_t value) { return {.value = value, .stated = true}; }

void check_resources(const Resources& resources) {
  check_range("memory", resources.memory_bytes.value, kMinMemoryBytes, kMaxBytes, " bytes");
  check_range("pids", resources.pids.value, kMinPids, kMaxPids, "");
  check_range("cpus", resources.cpu_millis.value, kMinCpuMillis, kMaxCpuMillis, " thousandths");
  if (resources.cpu_seconds) {
    check_range("cpu seconds", resources.cpu_seconds->value, 1, kMaxCpuSeconds, "");
  }
  check_range("disk", resources.disk_bytes.value, kMinDiskBytes, kMaxBytes, " bytes");
  check_range("disk inodes", resources.disk_inodes.value, kMinDiskInodes, kMaxDiskInodes, "");
  check_range("open files", resources.open_files.value, kMinOpenFiles, kMaxOpenFiles, "");
}

TransferTally::TransferTally(TransferLimits limits, std::string direction)
    : limits_(limits), direction_(std::move(direction)) {}

void TransferTally::add(std::string_view name, std::uint64_t bytes) {
  const auto refuse = [&](const std::string& why) {
    throw SandboxTransferCapExceeded(
        fmt::format("{}: '{}' is refused: {}", direction_, escape_for_display(name), why),
        fmt::format("move less, or raise the cap for {}", direction_));
  };
  if (bytes > limits_.max_bytes_per_file) {
    refuse(fmt::format("{} bytes are over the cap of {} bytes a file", bytes,
                       limits_.max_bytes_per_file));
  }
  if (files_ >= limits_.max_files) {
    refuse(fmt::format("it is file number {}, over the cap of {} files", files_ + 1,
                       limits_.max_files));
  }
  // Compared with what is left, because a sum of sizes that a guest names could wrap around.
  if (bytes > remaining_bytes()) {
    refuse(fmt::format("{} bytes after {} are over the cap of {} bytes in all", bytes, bytes_,
                       limits_.max_total_bytes));
  }
  ++files_;
  bytes_ += bytes;
}

}  // namespace casemate
