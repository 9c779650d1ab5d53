#pragma once

// For tests: a frame as it is on a connection.

#include <cstdint>
#include <string>
#include <string_view>

#include "casemate/guest/protocol.h"

namespace casemate::guest {

inline std::string framed(FrameType type, std::string_view payload = {}) {
  return Writer().u32(static_cast<std::uint32_t>(payload.size())).u8(wire(type)).take() +
         std::string(3, '\0') + std::string(payload);
}

}  // namespace casemate::guest
