#pragma once

// A table of timings whose rows are all taken in turn, so that a busy moment of the machine meets
// every one of them. Ratios count; absolute times do not travel to another machine.

#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace casemate::bench {

enum class Unit { milliseconds, bytes };

// What a row of ours shall keep to: its median at most `factor` times that of the subject `of` in
// the same work, plus `plus` in the row's unit. Without such a subject here it cannot be judged.
struct Bar {
  std::string of = "limit";
  double factor = 0;
  double plus = 0;
};

// One thing that does one kind of work: Casemate ("casemate ..."), the least that the work can cost
// ("limit"), or another sandbox by its name.
struct Subject {
  std::string work;
  std::string name;
  // The process that is timed, exactly; empty for what is no process of its own.
  std::vector<std::string> argv{};
  // Does it once and returns what it took. Throws when it did not do what it should.
  std::function<double()> once{};
  // For what is no matter of rounds: returns all samples, taken after the others.
  std::function<std::vector<double>()> all{};
  // All of them must hold.
  std::vector<Bar> bars{};
  Unit unit = Unit::milliseconds;
  // Why it is not measured here; empty when it is.
  std::string skipped{};
};

struct Row {
  Subject subject;
  std::vector<double> samples{};
  double median = 0;
  double p99 = 0;
  std::optional<double> ratio_to_limit{};
  // Nothing for subjects without bars, and where the subjects of the bars were not measured.
  std::optional<bool> holds{};
};

// "limit x 1.5 + 1 ms, bwrap x 1", or "1000000 bytes"; empty without bars.
std::string text_of(const std::vector<Bar>& bars, Unit unit);

// The `part` quantile (0 to 1) of values that are not empty.
double quantile(std::vector<double> values, double part);

// Takes `rounds` samples of every subject, one of each a round, after one that is not counted. A
// subject that throws is skipped from then on, with what it threw as the reason. Returns early,
// with nothing, when a stop is requested. `tell` gets a line of progress now and then.
std::vector<Row> measure(std::vector<Subject> subjects, std::size_t rounds,
                         const std::stop_token& stop,
                         const std::function<void(std::string_view)>& tell);

// Fills the medians, ratios and verdicts of rows that have their samples.
void judge(std::vector<Row>& rows);

}  // namespace casemate::bench
