#include "casemate/guest/agent/doors/flow.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace casemate::guest {
namespace {

// What Linux's own size of a pipe holds.
constexpr std::size_t kAtOnce = 64 * 1024;
constexpr std::size_t kAtATurn = 256 * 1024;
constexpr std::size_t kMaxIdlePipes = 64;

}  // namespace

std::optional<PipePair> PipePool::take() {
  if (!idle_.empty()) {
    PipePair pipe = std::move(idle_.back());
    idle_.pop_back();
    return pipe;
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return std::nullopt;
  return PipePair{sys::UniqueFd(ends[0]), sys::UniqueFd(ends[1])};
}

void PipePool::give_back(PipePair pipe) {
  if (idle_.size() < kMaxIdlePipes) idle_.push_back(std::move(pipe));
}

Flow::State Flow::pump(PipePool& pipes) {
  wants_source_ = wants_sink_ = false;
  if (state_ != State::moving) return state_;
  std::size_t turns = kAtATurn / kAtOnce;
  while (true) {
    Step step = Step::went_on;
    if (!queued_.empty()) {
      step = send_queued();
    } else if (piped_ > 0) {
      step = send_piped();
    } else if (source_ended_) {
      give_back_pipe(pipes);
      if (is_end_ && !is_end_()) return state_ = State::failed;
      // The other end may have gone meanwhile, and then there is nobody to be told.
      shutdown(to_, SHUT_WR);
      return state_ = State::done;
    } else if (turns-- == 0) {
      wants_source_ = true;
      step = Step::waits;
    } else {
      step = filter_ ? read_filtered() : fill_pipe(pipes);
    }
    if (step == Step::failed) return state_ = State::failed;
    if (step == Step::waits) {
      if (piped_ == 0) give_back_pipe(pipes);
      return state_;
    }
  }
}

Flow::Step Flow::after_error(bool& waits_for) {
  if (errno == EINTR) return Step::went_on;
  if (errno != EAGAIN) return Step::failed;
  waits_for = true;
  return Step::waits;
}

Flow::Step Flow::send_queued() {
  const ssize_t sent = send(to_, queued_.data(), queued_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return after_error(wants_sink_);
  queued_.erase(0, static_cast<std::size_t>(sent));
  if (queued_.empty()) queued_.shrink_to_fit();
  return Step::went_on;
}

Flow::Step Flow::send_piped() {
  const ssize_t sent =
      splice(pipe_->read.get(), nullptr, to_, nullptr, piped_, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  if (sent < 0) return after_error(wants_sink_);
  piped_ -= static_cast<std::size_t>(sent);
  return Step::went_on;
}

Flow::Step Flow::read_filtered() {
  std::array<char, 16 * 1024> buffer;
  const ssize_t got = recv(from_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0) return after_error(wants_source_);
  bool end = got == 0;
  const auto passed = filter_({buffer.data(), static_cast<std::size_t>(got)}, end);
  if (!passed) return Step::failed;
  queued_ += *passed;
  source_ended_ = end;
  return Step::went_on;
}

Flow::Step Flow::fill_pipe(PipePool& pipes) {
  if (!pipe_) pipe_ = pipes.take();
  // No descriptor is left.
  if (!pipe_) return read_by_hand();
  const ssize_t got = splice(from_, nullptr, pipe_->write.get(), nullptr, kAtOnce,
                             SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  // Where it has come to the mark of urgent data it says that nothing is there, or that this is the
  // end. Only recv goes past it; and what is there would be reported all the time.
  if (got == 0 || (got < 0 && errno == EAGAIN)) return read_by_hand();
  if (got < 0) return after_error(wants_source_);
  piped_ = static_cast<std::size_t>(got);
  return Step::went_on;
}

Flow::Step Flow::read_by_hand() {
  std::array<char, 16 * 1024> buffer;
  const ssize_t got = recv(from_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0) return after_error(wants_source_);
  source_ended_ = got == 0;
  queued_.append(buffer.data(), static_cast<std::size_t>(got));
  return Step::went_on;
}

void Flow::give_back_pipe(PipePool& pipes) {
  if (!pipe_ || piped_ > 0) return;
  pipes.give_back(std::move(*pipe_));
  pipe_.reset();
}

}  // namespace casemate::guest
