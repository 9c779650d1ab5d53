#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "casemate/base/log.h"

namespace casemate::app {

// What a server says on standard error: a line a time, and never waiting for whoever should read
// them. A client may leave our standard error undrained for hours; a line that would have to wait
// is dropped, and the next that is not says how many were. May be used from several threads.
class ServerLog {
 public:
  // Lines of `log` below `least` are left out.
  explicit ServerLog(LogLevel least);

  void say(std::string_view text) noexcept;
  // May outlive this.
  Log log() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace casemate::app
