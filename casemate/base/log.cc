#include "casemate/base/log.h"

#include "casemate/base/one_line.h"

namespace casemate {

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "unknown";
}

void write_log(const Log& log, LogLevel level, std::string_view text) noexcept {
  if (!log) {
    return;
  }
  try {
    log(level, one_line(text));
  } catch (...) {
    // A diagnostic must not change what is being diagnosed, and there is nowhere else to say so.
  }
}

}  // namespace casemate
