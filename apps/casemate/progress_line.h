#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/images/progress.h"

namespace casemate::app {

// Where progress is shown. A test has its own.
struct ProgressScreen {
  std::function<void(std::string_view)> write;
  // How wide a line is now.
  std::function<std::size_t()> columns;
  std::function<std::chrono::steady_clock::time_point()> now;
  // Whether a line may be drawn over, by a carriage return.
  bool redraws = true;
};

// Standard error, which is a terminal; one that TERM calls dumb, or does not name, draws nothing
// over. What cannot be written is lost.
ProgressScreen screen_of_standard_error();

// One line of `casemate: STEP, 1.2 of 3.4 MiB`, drawn over ten times a second at most while the
// step goes on, and ended with it; it never grows wider than the screen. Where no line is drawn
// over, a step has one when it begins, and more only when its bytes have doubled from 64 MiB.
// Thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(ProgressScreen screen) : screen_(std::move(screen)) {}

  void show(const images::Progress& progress);

 private:
  void print(const images::Progress& progress);
  void draw(const images::Progress& progress);

  ProgressScreen screen_;
  std::mutex mutex_;
  // The step whose line is not ended; empty: none.
  std::string open_;
  std::chrono::steady_clock::time_point drawn_at_;
  std::size_t drawn_columns_ = 0;
  // Bytes that are worth the next line.
  std::uint64_t next_ = 0;
};

}  // namespace casemate::app
