#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace casemate {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

std::string_view to_string(LogLevel level);

// Where diagnostics go; owned by the host and handed to what logs. May be called from any thread;
// must not throw. An empty function discards. Text is valid UTF-8, one line, with control
// characters escaped; it may hold operator detail and guest-supplied text, never for a model.
using Log = std::function<void(LogLevel, std::string_view)>;

// Calls `log` when it is set; what it throws is contained.
void write_log(const Log& log, LogLevel level, std::string_view text) noexcept;

}  // namespace casemate
