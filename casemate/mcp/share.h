#pragma once

// What one of several callers may hold of what a server has for all of them.

#include <cstddef>
#include <cstdint>

namespace casemate::mcp {

// `three_quarters`: of one who is told from others (by a token), so that none of them can take the
// last place from the rest. `whole`: of one who is alone, or whom nothing tells from others.
enum class Share : std::uint8_t { whole, three_quarters };

// Of fewer than four, three quarters are all.
constexpr std::size_t part_of(std::size_t total, Share share) noexcept {
  return share == Share::whole ? total : total - total / 4;
}

}  // namespace casemate::mcp
