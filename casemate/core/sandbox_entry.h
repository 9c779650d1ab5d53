#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "casemate/core/vocabulary.h"

namespace casemate {

// One directory entry, never followed.
struct SandboxEntry {
  // Relative to the call's working directory.
  std::string path{};
  EntryKind kind = EntryKind::other;
  // Present for regular files whose size the backend vouches for. Absent: refuse to read.
  std::optional<std::uint64_t> size_bytes{};
  friend bool operator==(const SandboxEntry&, const SandboxEntry&) = default;
};

}  // namespace casemate
