#pragma once

// What a spec says of the host functions that a program may call.

#include <cstdint>

#include "casemate/core/limits.h"

namespace casemate {

// Calls of host tools that one run may make when the host states no number.
inline constexpr std::uint64_t kDefaultHostToolCalls = 16;

// The part of a registry that decides whether a provider can carry its calls: a snapshot, taken
// when the registry is sealed.
//
// Where calls travel as files the router counts them with the files of the spec
// (`fold_host_tools`).
struct HostToolSurface {
  // Calls of one run, the refused ones among them.
  std::uint64_t max_calls = kDefaultHostToolCalls;
  // Answers of one run: bytes of one, bytes of all, number.
  TransferLimits response_limits{};
  friend bool operator==(const HostToolSurface&, const HostToolSurface&) = default;
};

}  // namespace casemate
