// `casemate bench`: this machine's numbers beside its engines.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/casemate/console.h"
#include "apps/casemate/stop_requests.h"
#include "apps/casemate/values.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "bench/egress.h"
#include "bench/engine.h"
#include "bench/host_tools.h"
#include "bench/limits.h"
#include "bench/ours.h"
#include "bench/peers.h"
#include "bench/table.h"
#include "casemate/base/json.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace json = boost::json;

namespace {

constexpr std::size_t kDefaultRounds = 200;
constexpr std::size_t kMostRounds = 100000;

constexpr auto kWorks = std::to_array<std::string_view>(
    {"cold_true", "warm_true", "warm_print", "held_print", "pool_acquire", "host_tool_call",
     "host_tool_8_threads", "files_in", "files_out", "create_remove", "idle_memory", "alive_1000",
     "cli_start", "egress_throughput"});

constexpr auto kOptions = std::to_array<OptionSpec>({
    {"--work", "NAME", Repeat::allowed, "all", "only this kind of work", "--work cold_true",
     ValueForm::text, kWorks},
    {"--rounds", "N", Repeat::refused, "200", "samples of every row", "--rounds 50",
     ValueForm::number},
    {"--json", "", Repeat::refused, "off", "one array of records, with every sample", "--json"},
    kConfigOption,
    {"-v", "", Repeat::refused, "quiet", "log to standard error", "-v"},
});

json::value number_or_null(const bench::Row& row, bench::Unit unit, double value) {
  if (row.samples.empty() || row.subject.unit != unit) return nullptr;
  return value;
}

json::object record_of(const bench::Row& row) {
  using bench::Unit;
  const bench::Subject& subject = row.subject;
  json::array argv;
  for (const std::string& word : subject.argv) argv.emplace_back(word);
  json::array samples;
  for (const double value : row.samples) samples.emplace_back(value);
  json::object record{
      {"work", subject.work},
      {"subject", subject.name},
      {"argv", std::move(argv)},
      {"median_ms", number_or_null(row, Unit::milliseconds, row.median)},
      {"p99_ms", number_or_null(row, Unit::milliseconds, row.p99)},
      {"runs", row.samples.size()},
      {"samples_ms", subject.unit == Unit::milliseconds ? samples : json::array{}},
      {"ratio_to_limit", row.ratio_to_limit ? json::value(*row.ratio_to_limit) : json::value()},
      {"target", subject.bars.empty() ? json::value()
                                      : json::value(bench::text_of(subject.bars, subject.unit))},
      {"holds", row.holds ? json::value(*row.holds) : json::value()}};
  if (subject.unit == Unit::bytes) {
    record["median_bytes"] = number_or_null(row, Unit::bytes, row.median);
    record["samples_bytes"] = std::move(samples);
  }
  if (!subject.skipped.empty()) record["reason"] = subject.skipped;
  return record;
}

std::string value_text(const bench::Row& row, double value) {
  return row.subject.unit == bench::Unit::bytes ? fmt::format("{:.0f} KiB", value / 1024)
                                                : fmt::format("{:.3f} ms", value);
}

// At least; the longest subject widens it.
constexpr std::size_t kSubjectColumn = 20;

std::string table_text(const std::vector<bench::Row>& rows) {
  std::size_t width = kSubjectColumn;
  for (const bench::Row& row : rows) width = std::max(width, row.subject.name.size());
  std::string text = fmt::format("{:<19} {:<{}} {:>12} {:>12} {:>8}  {}\n", "WORK", "SUBJECT",
                                 width, "MEDIAN", "P99", "x LIMIT", "AT MOST");
  for (const bench::Row& row : rows) {
    const bench::Subject& subject = row.subject;
    if (row.samples.empty()) {
      text += fmt::format("{:<19} {:<{}} skipped: {}\n", subject.work, subject.name, width,
                          subject.skipped);
      continue;
    }
    std::string verdict = bench::text_of(subject.bars, subject.unit);
    if (row.holds) verdict += *row.holds ? ": holds" : ": DOES NOT HOLD";
    text +=
        fmt::format("{:<19} {:<{}} {:>12} {:>12} {:>8}  {}\n", subject.work, subject.name, width,
                    value_text(row, row.median), value_text(row, row.p99),
                    row.ratio_to_limit ? fmt::format("{:.2f}", *row.ratio_to_limit) : "", verdict);
  }
  return text;
}

std::vector<bench::Subject> choose(std::vector<bench::Subject> all,
                                   const std::vector<std::string>& wanted) {
  if (wanted.empty()) return all;
  std::erase_if(all, [&](const bench::Subject& subject) {
    return std::ranges::find(wanted, subject.work) == wanted.end();
  });
  return all;
}

// Rows of one kind of work together, limits first.
std::vector<bench::Subject> in_order(std::vector<std::vector<bench::Subject>> groups) {
  std::vector<bench::Subject> ordered;
  for (const std::string_view work : kWorks) {
    for (auto& group : groups) {
      for (bench::Subject& subject : group) {
        if (subject.work == work) ordered.push_back(std::move(subject));
      }
      std::erase_if(group, [&](const bench::Subject& subject) { return subject.work.empty(); });
    }
  }
  return ordered;
}

// With the image that the rows of the engine's own client use, where one is named for them.
std::vector<bench::Subject> engine_subjects(const Config& config, Log log) {
  DockerBackendOptions options = docker_options(config, std::move(log));
  if (const char* image = std::getenv("CASEMATE_BENCH_IMAGE")) options.image = image;
  const std::string image = options.image;
  return bench::engine_subjects(std::make_shared<DockerBackend>(std::move(options)), image);
}

// Off unless an image is named: a machine shares none with this one.
std::vector<bench::Subject> machine_subjects(const Config& config, Log log) {
  const char* image = std::getenv("CASEMATE_BENCH_MACHINE_IMAGE");
  const auto backend = std::make_shared<MicrovmBackend>(microvm_options(config, std::move(log)));
  const bool emulated = backend->declarations().isolation < Isolation::microvm;
  return bench::machine_subjects(backend, image == nullptr ? "" : image, emulated);
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace

constexpr VerbSpec kBenchVerb = {
    .name = "bench",
    .synopsis = "bench [OPTIONS]",
    .summary = "this machine's numbers beside its engines",
    .notes =
        "Every row is measured in turn, once a round. \"limit\" is the least that the work costs "
        "here, by the\n"
        "kernel's own calls; the other subjects are what this machine has (bwrap, crun, runc, "
        "docker).\n"
        "Containers of an engine and virtual machines are measured with the images that\n"
        "CASEMATE_BENCH_IMAGE and CASEMATE_BENCH_MACHINE_IMAGE name.\n"
        "Ratios count: a busy machine makes all rows slower, and absolute times do not travel.\n"
        "Exit status: 0, also when a row does not hold; 125 when nothing could be measured.",
    .options = kOptions,
    .operands = ValueForm::text,
    .offered_operands = {},
};

int bench_verb(const ParsedLine& line, const Config& config) {
  refuse_operands(line);
  // Before anything that starts a thread.
  const StopRequests stop;
  std::size_t rounds = kDefaultRounds;
  read_line(line, [&](const ParsedLine& given) {
    for (const std::string& work : given.values("--work")) one_of("--work", work, kWorks);
    if (given.has("--rounds")) {
      rounds = parse_count("--rounds", given.value_or("--rounds", ""), 1, kMostRounds);
    }
  });
  auto backends = make_backends(config, make_log(line));
  auto ours = bench::our_subjects({.backend = backends.front(),
                                   .state_dir = linux_options(config, {}).state_dir,
                                   .program = own_program()});
  std::vector<std::vector<bench::Subject>> groups;
  groups.push_back(bench::limit_subjects());
  groups.push_back(std::move(ours));
  groups.push_back(bench::host_tool_subjects(backends.front()));
  groups.push_back(bench::egress_subjects(backends.front()));
  groups.push_back(engine_subjects(config, make_log(line)));
  groups.push_back(machine_subjects(config, make_log(line)));
  groups.push_back(bench::peer_subjects());
  const bool quiet = isatty(STDERR_FILENO) == 0;
  const auto tell = [&](std::string_view step) {
    if (!quiet) say(step);
  };
  const auto rows = bench::measure(choose(in_order(std::move(groups)), line.values("--work")),
                                   rounds, stop.token(), tell);
  if (const auto status = stop.exit_status()) return *status;
  if (line.has("--json")) {
    json::array records;
    for (const bench::Row& row : rows) records.push_back(record_of(row));
    write_all(STDOUT_FILENO, serialise_json(records) + '\n');
  } else {
    write_all(STDOUT_FILENO, table_text(rows));
  }
  return 0;
}

}  // namespace casemate::app
