#include "casemate/images/answering.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <stop_token>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/signals.h"
#include "casemate/sys/thread.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

// Whatever comes of it.
void read_once(const std::string& path) {
  const UniqueFd entry(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status{};
  if (!entry || fstat(entry.get(), &status) < 0) return;
  // Of a directory the file that is read first where it is a layout.
  const UniqueFd inner(S_ISDIR(status.st_mode)
                           ? openat(entry.get(), "index.json", O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                           : -1);
  const int file = inner ? inner.get() : entry.get();
  char byte = 0;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    static_cast<void>(!pread(file, &byte, 1, 0));
  }
}

// Whoever waited may be gone and ask again: what never answers shall not cost a thread each time.
constexpr int kMostUnanswered = 16;

// One of those that are asked now, until both who waits and who asks are done.
struct Asking {
  Asking() : held(&count, [](std::atomic<int>* all) { --*all; }) {
    if (++count > kMostUnanswered) {
      throw SandboxUnavailable(
          fmt::format("{} questions to file systems wait for their answer", kMostUnanswered),
          "see that what serves them runs and can be reached");
    }
  }
  static inline std::atomic<int> count = 0;
  std::shared_ptr<std::atomic<int>> held;
};

}  // namespace

void wait_for_answer(const std::string& path, const CallControl& control) {
  if (!control.deadline && !control.stop.stop_possible()) return;
  const Asking asking;
  // The thread's own, if it stays behind.
  const auto answered = std::make_shared<const UniqueFd>(sys::make_event());
  {
    const sys::SignalsBlocked blocked;
    sys::start_thread([path, answered, held = asking.held] {
      read_once(path);
      sys::raise_event(answered->get());
    }).detach();
  }
  const UniqueFd stopped = sys::make_event();
  const std::stop_callback on_stop(control.stop, [&stopped] { sys::raise_event(stopped.get()); });
  std::array<pollfd, 2> entries = {pollfd{answered->get(), POLLIN, 0},
                                   pollfd{stopped.get(), POLLIN, 0}};
  const int ready = sys::poll_until(entries, control.deadline);
  if (entries[0].revents != 0) return;
  const std::string what =
      fmt::format("the file system of '{}' answered", escape_for_display(path));
  if (ready != 0) throw SandboxCancelled(fmt::format("cancelled before {}", what));
  throw SandboxTimeout(fmt::format("the deadline came before {}", what),
                       "see that what serves it runs and can be reached");
}

}  // namespace casemate::images
