#include "casemate/images/progress.h"

#include <algorithm>
#include <utility>

namespace casemate::images {
namespace {

// So rarely that telling costs nothing beside the reading.
constexpr std::uint64_t kToldEvery = 1 << 20;

}  // namespace

ProgressStep::ProgressStep(const ProgressSink& sink, std::string text, std::uint64_t total)
    : sink_(sink), text_(std::move(text)), total_(total), next_(kToldEvery) {
  tell(ProgressPhase::begun);
}

void ProgressStep::reach(std::uint64_t done) {
  if (total_ != 0) done = std::min(done, total_);
  if (done <= done_) return;
  done_ = done;
  if (done_ < next_) return;
  next_ = done_ + kToldEvery;
  tell(ProgressPhase::going);
}

void ProgressStep::end() {
  if (total_ == 0) {
    total_ = done_;
  } else {
    done_ = total_;
  }
  tell(ProgressPhase::ended);
}

void ProgressStep::tell(ProgressPhase phase) {
  if (sink_) sink_({.step = text_, .phase = phase, .done = done_, .total = total_});
}

}  // namespace casemate::images
