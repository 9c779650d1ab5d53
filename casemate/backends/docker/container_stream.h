#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/backends/docker/attached_stream.h"
#include "casemate/base/log.h"
#include "casemate/guest/stream/multiplexed_stream.h"

namespace casemate::docker {

// How a container is reached that shares no directory with this host: an exec of the guest program
// in it, with a lease, whose standard streams are multiplexed. Thread-safe.
class ContainerStream {
 public:
  // Throws `std::system_error`.
  ContainerStream(AttachedStream attached, std::string id, Log log)
      : attached_(std::move(attached)),
        stream_(attached_.take_end(), {.id = std::move(id),
                                       .log = [log = std::move(log), expected = end_is_expected_](
                                                  LogLevel level, std::string_view text) {
                                         if (!*expected) write_log(log, level, text);
                                       }}) {}

  // As `guest::MultiplexedStream`.
  void await_ready(const CallControl& control) const { stream_.await_ready(control); }
  sys::UniqueFd connect(const CallControl& control) { return stream_.connect(control); }
  bool alive() const { return stream_.alive(); }
  // The container is about to be ended: that its stream breaks off is no news.
  void expect_end() noexcept { *end_is_expected_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> end_is_expected_ = std::make_shared<std::atomic<bool>>(false);
  // Outlives the other, whose last words it carries.
  AttachedStream attached_;
  guest::MultiplexedStream stream_;
};

}  // namespace casemate::docker
