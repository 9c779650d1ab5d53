#pragma once

// How far the work on an image is.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace casemate::images {

enum class ProgressPhase : std::uint8_t { begun, going, ended };

struct Progress {
  // "unpacking layer 2 of 5": a part of one line, in words of ours and of the operator's reference;
  // nothing that an image says is in it.
  std::string_view step;
  ProgressPhase phase = ProgressPhase::begun;
  // Bytes of it that are done: never fewer than were told before, never more than `total`.
  std::uint64_t done = 0;
  // 0: not known before the end, or it is not counted in bytes.
  std::uint64_t total = 0;
};

// Told from the calling thread. What it throws ends the work.
using ProgressSink = std::function<void(const Progress&)>;

// One step, told of at its begin, with every MiB more, and at its end. A step that throws has no
// end. `sink` is borrowed and may be empty. Not thread-safe.
class ProgressStep {
 public:
  ProgressStep(const ProgressSink& sink, std::string text, std::uint64_t total = 0);
  ProgressStep(const ProgressStep&) = delete;
  ProgressStep& operator=(const ProgressStep&) = delete;

  // So many bytes are done. More than `total` counts as all: a file may grow while it is read.
  void reach(std::uint64_t done);
  // All is done; without a total, what was reached was all.
  void end();

 private:
  void tell(ProgressPhase phase);

  const ProgressSink& sink_;
  std::string text_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  // What is told of next.
  std::uint64_t next_;
};

}  // namespace casemate::images
