#pragma once

// For tests: a message as it is on a stream.

#include <cstdint>
#include <string>
#include <string_view>

#include "casemate/guest/protocol.h"
#include "casemate/guest/stream/multiplexer.h"

namespace casemate::guest {

// The first channel that a guest may open.
inline constexpr ChannelId kGuestFirst = 0x8000'0000;

// `type` by its number, so that there are wrong ones too.
inline std::string message(ChannelId channel, int type, std::string_view payload = {}) {
  return Writer()
             .u32(channel)
             .u8(static_cast<std::uint8_t>(payload.size()))
             .u8(static_cast<std::uint8_t>(payload.size() >> 8))
             .u8(static_cast<std::uint8_t>(type))
             .u8(0)
             .take() +
         std::string(payload);
}

}  // namespace casemate::guest
