#include "casemate/base/notice.h"

#include <mutex>
#include <utility>

namespace casemate {

struct Notices::State {
  Hook hook;
  std::mutex mutex;
  // Codes never to deliver: the suppressed ones, and each once it was delivered.
  std::set<std::string> done;
};

Notices::Notices() = default;

Notices::Notices(Hook hook, std::set<std::string> suppressed_codes)
    : state_(std::make_shared<State>()) {
  state_->hook = std::move(hook);
  state_->done = std::move(suppressed_codes);
}

void Notices::notify(std::string_view code, std::string_view text,
                     const std::source_location& where) const noexcept {
  if (!state_ || !state_->hook) {
    return;
  }
  try {
    {
      const std::lock_guard lock(state_->mutex);
      if (!state_->done.insert(std::string(code)).second) {
        return;
      }
    }
    // Outside the lock: the hook may notify in turn.
    state_->hook(code, text, where);
  } catch (...) {
    // A notice is never a failure of what it is about.
  }
}

}  // namespace casemate
