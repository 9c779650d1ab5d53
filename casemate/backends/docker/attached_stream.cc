#include "casemate/backends/docker/attached_stream.h"

#include <thread>
#include <utility>

#include "casemate/sys/signals.h"
#include "casemate/sys/thread.h"

namespace casemate::docker {

struct AttachedStream::Running {
  explicit Running(std::unique_ptr<Carrier> of) : carrier(std::move(of)) {
    // The thread has them from here.
    const sys::SignalsBlocked blocked;
    thread = sys::start_thread([this] { carrier->carry(); });
  }
  std::unique_ptr<Carrier> carrier;
  std::thread thread;
};

AttachedStream::AttachedStream(guest::StreamEnd end, std::unique_ptr<Carrier> carrier)
    : end_(std::move(end)), running_(std::make_unique<Running>(std::move(carrier))) {}

AttachedStream::AttachedStream(AttachedStream&&) noexcept = default;

AttachedStream::~AttachedStream() {
  if (!running_) return;
  if (!owner_.is_current()) {
    // The thread is the parent's.
    static_cast<void>(running_.release());
    return;
  }
  running_->carrier->finish();
  running_->thread.join();
}

}  // namespace casemate::docker
