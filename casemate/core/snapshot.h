#pragma once

#include <cstdint>
#include <string>

#include "casemate/core/spec.h"

namespace casemate {

// What a sandbox's programs left, kept beside it to begin others from. See `SandboxBackend`.
struct SandboxSnapshot {
  // 32 hex digits that nobody can guess, never used twice.
  std::string id{};
  std::string backend{};
  // Of the sandbox that it was taken of.
  SandboxKey key{};
  std::string kind{};
  // What it takes of the host's storage.
  std::uint64_t bytes = 0;
  friend bool operator==(const SandboxSnapshot&, const SandboxSnapshot&) = default;
};

}  // namespace casemate
