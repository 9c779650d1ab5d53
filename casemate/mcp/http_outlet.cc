#include "casemate/mcp/http_outlet.h"

#include <exception>
#include <utility>

namespace casemate::mcp {
namespace {

unsigned status_of(const Outgoing& message) { return static_cast<unsigned>(message.http_status); }

}  // namespace

StreamOutlet::StreamOutlet(std::shared_ptr<EventStream> stream) : stream_(std::move(stream)) {}

void StreamOutlet::send(Outgoing message) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (last_reply_) {
      const unsigned status = status_of(*last_reply_);
      stream_->push(EventStream::Kind::reply, std::move(last_reply_->text), status);
      last_reply_.reset();
    }
    if (message.kind == Outgoing::Kind::reply) {
      last_reply_ = std::move(message);
    } else {
      stream_->push(message.kind == Outgoing::Kind::request ? EventStream::Kind::request
                                                            : EventStream::Kind::notification,
                    std::move(message.text));
    }
  } catch (const std::exception&) {
    // No memory: the client sees a stream that ended early, rather than one that never does.
    stream_->finish();
  }
}

void StreamOutlet::finished() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (last_reply_) {
      const unsigned status = status_of(*last_reply_);
      stream_->push_last(EventStream::Kind::reply, std::move(last_reply_->text), status);
    } else {
      stream_->finish();
    }
  } catch (const std::exception&) {
    stream_->finish();
  }
}

}  // namespace casemate::mcp
