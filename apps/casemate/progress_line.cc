#include "apps/casemate/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "apps/casemate/console.h"
#include "casemate/base/one_line.h"

namespace casemate::app {
namespace {

using images::Progress;
using images::ProgressPhase;

constexpr std::string_view kName = "casemate: ";
constexpr std::chrono::milliseconds kBetweenDrawings{100};
constexpr std::uint64_t kWorthALine = 64 << 20;
constexpr std::size_t kUsualColumns = 80;

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Behind the step.
std::string counted(const Progress& progress) {
  if (progress.phase != ProgressPhase::ended && progress.total > 0) {
    return fmt::format(", {:.1f} of {:.1f} MiB", mebibytes(progress.done),
                       mebibytes(progress.total));
  }
  return progress.done > 0 ? fmt::format(", {:.1f} MiB", mebibytes(progress.done)) : "";
}

std::string cut(std::string text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  // Between two characters.
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0U) == 0x80) --bytes;
  text.resize(bytes);
  return text;
}

}  // namespace

ProgressScreen screen_of_standard_error() {
  const char* terminal = std::getenv("TERM");
  const std::string_view kind = terminal == nullptr ? "" : terminal;
  return {.write =
              [](std::string_view text) {
                try {
                  write_all(STDERR_FILENO, text);
                } catch (const std::exception&) {
                  // Nobody looks any more; the work goes on.
                }
              },
          .columns =
              [] {
                winsize size{};
                const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
                return known ? std::size_t{size.ws_col} : kUsualColumns;
              },
          .now = [] { return std::chrono::steady_clock::now(); },
          .redraws = !kind.empty() && kind != "dumb"};
}

void ProgressLine::show(const Progress& progress) {
  const std::lock_guard lock(mutex_);
  if (screen_.redraws) {
    draw(progress);
  } else {
    print(progress);
  }
}

void ProgressLine::print(const Progress& progress) {
  Progress shown = progress;
  switch (progress.phase) {
    case ProgressPhase::begun:
      // All that there is to do.
      shown = {.step = progress.step,
               .phase = ProgressPhase::ended,
               .done = progress.total,
               .total = progress.total};
      next_ = kWorthALine;
      break;
    case ProgressPhase::going:
      if (progress.done < next_) return;
      next_ = 2 * progress.done;
      break;
    case ProgressPhase::ended:
      return;
  }
  screen_.write(fmt::format("{}{}{}\n", kName, one_line(shown.step), counted(shown)));
}

void ProgressLine::draw(const Progress& progress) {
  const auto now = screen_.now();
  if (progress.step != open_) {
    if (!open_.empty()) screen_.write("\n");
    open_ = progress.step;
    drawn_columns_ = 0;
  } else if (progress.phase == ProgressPhase::going && now - drawn_at_ < kBetweenDrawings) {
    return;
  }
  // A line that is full would go on in the next, where a carriage return does not reach it.
  const std::size_t columns = std::max<std::size_t>(screen_.columns(), 1) - 1;
  const std::string count = counted(progress);
  const std::size_t around = kName.size() + count.size();
  const std::string step = cut(one_line(progress.step), columns - std::min(columns, around));
  const std::string line = cut(fmt::format("{}{}{}", kName, step, count), columns);
  const std::size_t before = std::min(drawn_columns_, columns);
  const std::string gone(before - std::min(before, line.size()), ' ');
  drawn_columns_ = line.size();
  // What comes first after the begin is drawn at once: nothing may come behind it for long.
  drawn_at_ = progress.phase == ProgressPhase::begun ? now - kBetweenDrawings : now;
  const bool ended = progress.phase == ProgressPhase::ended;
  screen_.write(fmt::format("\r{}{}{}", line, gone, ended ? "\n" : ""));
  if (ended) open_.clear();
}

}  // namespace casemate::app
