// Values of options: within the range that was asked for, and read back the same.

#include "apps/casemate/values.h"

#include <charconv>
#include <string>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using namespace casemate::app;

// Runs `read`; a refusal has to be text, and is no finding.
template <typename Read>
void unless_refused(Read read) {
  try {
    read();
  } catch (const InvalidArgument& refusal) {
    require(is_valid_utf8(refusal.message()) && is_valid_utf8(refusal.hint()), "a refusal is text");
    require(refusal.message().size() < 2048, "a refusal is bounded");
  }
}

// What a text begins with; it has to begin with a digit or a point.
double number_in(std::string_view text) {
  require(!text.empty() && ((text[0] >= '0' && text[0] <= '9') || text[0] == '.'),
          "a value is a number");
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

void fuzz_values(std::string_view bytes) {
  unless_refused([&] {
    const std::uint64_t size = parse_size("--memory", bytes, kMinMemoryBytes);
    require(size >= kMinMemoryBytes && size <= kMaxBytes, "a size is within its range");
    require(parse_size("--memory", size_text(size), kMinMemoryBytes) == size,
            "a size is read back the same");
    require(static_cast<double>(size) >= number_in(bytes) * 0.999999,
            "a size is no less than its number");
  });
  unless_refused([&] {
    const std::uint64_t count = parse_count("--pids", bytes, kMinPids, kMaxPids);
    require(count >= kMinPids && count <= kMaxPids, "a count is within its range");
    require(parse_count("--pids", std::to_string(count), kMinPids, kMaxPids) == count,
            "a count is read back the same");
  });
  unless_refused([&] {
    const auto seconds = parse_seconds("--timeout", bytes);
    require(seconds.count() > 0 && seconds <= std::chrono::seconds(kMaxTimeoutSeconds),
            "a time is within its range");
    const double rough = number_in(bytes);
    const double read = static_cast<double>(seconds.count()) / 1e9;
    require(read > rough * 0.999999 - 1e-9 && read < rough * 1.000001 + 1e-9,
            "a time is the number that was typed");
  });
  unless_refused([&] {
    const std::uint64_t millis = parse_cpus("--cpus", bytes);
    require(millis >= kMinCpuMillis && millis <= kMaxCpuMillis, "processors are within the range");
  });
  unless_refused([&] {
    const TransferLimits limits = parse_transfer_limits("--files-in-limit", bytes);
    require(limits.max_bytes_per_file > 0 && limits.max_total_bytes > 0 && limits.max_files > 0,
            "no cap is zero");
    require(limits.max_files <= kMaxTransferFiles && limits.max_total_bytes <= kMaxBytes &&
                limits.max_bytes_per_file <= kMaxBytes,
            "caps are within their ranges");
    const std::string again = size_text(limits.max_bytes_per_file) + "," +
                              size_text(limits.max_total_bytes) + "," +
                              std::to_string(limits.max_files);
    require(parse_transfer_limits("--files-in-limit", again) == limits,
            "caps are read back the same");
  });
  unless_refused([&] {
    const auto [name, value] = parse_assignment("--env", bytes);
    require(!name.empty() && name.find('=') == std::string::npos, "an assignment has a name");
    require(name + "=" + value == bytes, "an assignment is what was typed");
  });
}

}  // namespace casemate::fuzz
