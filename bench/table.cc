#include "bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

namespace casemate::bench {
namespace {

const Row* measured(const std::vector<Row>& rows, std::string_view work, std::string_view name) {
  const auto found = std::ranges::find_if(rows, [&](const Row& row) {
    return row.subject.work == work && row.subject.name == name && !row.samples.empty();
  });
  return found == rows.end() ? nullptr : &*found;
}

std::optional<bool> holds(const std::vector<Row>& rows, const Row& row) {
  if (row.samples.empty() || row.subject.bars.empty()) return std::nullopt;
  std::optional<bool> verdict = true;
  for (const Bar& bar : row.subject.bars) {
    double most = bar.plus;
    if (bar.factor > 0) {
      const Row* other = measured(rows, row.subject.work, bar.of);
      if (other == nullptr) {
        verdict.reset();
        continue;
      }
      most += bar.factor * other->median;
    }
    // One that is broken is broken, whatever cannot be judged beside it.
    if (row.median > most) return false;
  }
  return verdict;
}

// False when it threw, and is not to be tried again.
bool sample(Row& row, bool counted) {
  Subject& subject = row.subject;
  try {
    const double value = subject.once();
    if (counted) row.samples.push_back(value);
    return true;
  } catch (const std::exception& failure) {
    subject.skipped = failure.what();
    row.samples.clear();
    return false;
  }
}

}  // namespace

std::string text_of(const std::vector<Bar>& bars, Unit unit) {
  std::string text;
  for (const Bar& bar : bars) {
    if (!text.empty()) text += ", ";
    if (bar.factor > 0) text += fmt::format("{} x {}", bar.of, bar.factor);
    if (bar.plus > 0) {
      text += fmt::format("{}{} {}", bar.factor > 0 ? " + " : "", bar.plus,
                          unit == Unit::bytes ? "bytes" : "ms");
    }
  }
  return text;
}

double quantile(std::vector<double> values, double part) {
  // The nearest rank.
  const double rank = std::ceil(part * static_cast<double>(values.size()));
  const auto index = static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::ranges::nth_element(values, values.begin() + index);
  return values[static_cast<std::size_t>(index)];
}

void judge(std::vector<Row>& rows) {
  for (Row& row : rows) {
    if (row.samples.empty()) continue;
    row.median = quantile(row.samples, 0.5);
    row.p99 = quantile(row.samples, 0.99);
  }
  for (Row& row : rows) {
    const Row* limit = measured(rows, row.subject.work, "limit");
    if (limit != nullptr && !row.samples.empty() && limit->median > 0) {
      row.ratio_to_limit = row.median / limit->median;
    }
    row.holds = holds(rows, row);
  }
}

std::vector<Row> measure(std::vector<Subject> subjects, std::size_t rounds,
                         const std::stop_token& stop,
                         const std::function<void(std::string_view)>& tell) {
  std::vector<Row> rows;
  for (Subject& subject : subjects) rows.push_back({.subject = std::move(subject)});
  for (std::size_t round = 0; round <= rounds; ++round) {
    if (round % 20 == 1) tell(fmt::format("round {} of {}", round, rounds));
    for (Row& row : rows) {
      if (stop.stop_requested()) return {};
      if (row.subject.once && row.subject.skipped.empty()) sample(row, round > 0);
    }
  }
  for (Row& row : rows) {
    if (stop.stop_requested()) return {};
    if (!row.subject.all || !row.subject.skipped.empty()) continue;
    tell(fmt::format("{}: {}", row.subject.work, row.subject.name));
    try {
      row.samples = row.subject.all();
    } catch (const std::exception& failure) {
      row.subject.skipped = failure.what();
    }
  }
  judge(rows);
  return rows;
}

}  // namespace casemate::bench
