// `casemate ls`: every sandbox that this user has.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/kept_sandboxes.h"
#include "apps/casemate/values.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/backend.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

namespace json = boost::json;

constexpr auto kOptions = std::to_array<OptionSpec>({
    {"--scope", "S", Repeat::refused, "every scope", "those whose key begins with this scope",
     "--scope reports"},
    {"--json", "", Repeat::refused, "off", "one array of records on standard output", "--json"},
    kConfigOption,
    {"-v", "", Repeat::refused, "quiet", "log to standard error", "-v"},
});

// What a host chose may be any bytes; JSON holds UTF-8 only.
json::string json_text(const std::string& text) { return json::string(replace_invalid_utf8(text)); }

std::int64_t whole_seconds(std::chrono::nanoseconds time) {
  return std::chrono::floor<std::chrono::seconds>(time).count();
}

json::object record(const SandboxRecord& sandbox) {
  return {{"id", sandbox.id},
          {"backend", sandbox.backend},
          {"isolation", to_string(sandbox.isolation)},
          {"scope", json_text(sandbox.key.scope)},
          {"thread", json_text(sandbox.key.thread_id)},
          {"agent", json_text(sandbox.key.agent_dir)},
          {"kind", json_text(sandbox.kind)},
          {"age_s", whole_seconds(sandbox.age)},
          {"idle_s", whole_seconds(sandbox.idle)},
          {"processes", sandbox.processes},
          {"memory_bytes", sandbox.memory_bytes}};
}

// 90 as "1m", 7200 as "2h": as much as tells sandboxes apart.
std::string age_text(std::chrono::nanoseconds age) {
  const auto seconds = whole_seconds(age);
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / (24 * 3600));
}

std::string memory_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMi = std::uint64_t{1} << 20U;
  return fmt::format("{}.{}M", bytes / kMi, bytes % kMi * 10 / kMi);
}

using Row = std::vector<std::string>;

Row row(const SandboxRecord& sandbox) {
  return {sandbox.id,
          sandbox.backend,
          std::string(to_string(sandbox.isolation)),
          escape_for_display(sandbox.key.scope),
          escape_for_display(sandbox.key.thread_id),
          escape_for_display(sandbox.key.agent_dir),
          escape_for_display(sandbox.kind),
          age_text(sandbox.age),
          age_text(sandbox.idle),
          std::to_string(sandbox.processes),
          memory_text(sandbox.memory_bytes)};
}

std::string table(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& cells : rows) {
    for (std::size_t column = 0; column < cells.size(); ++column) {
      std::size_t width = 0;
      for (const Row& other : rows) width = std::max(width, other[column].size());
      if (column + 1 == cells.size()) {
        text += cells[column] + '\n';
      } else {
        text += fmt::format("{:<{}}  ", cells[column], width);
      }
    }
  }
  return text;
}

}  // namespace

constexpr VerbSpec kListVerb = {
    .name = "ls",
    .synopsis = "ls [OPTIONS]",
    .summary = "list every sandbox of this user",
    .notes =
        "IDLE is the time since its last call ended; 0s while one is open. A sandbox that a run "
        "with\n"
        "--keep left ends by itself when it was idle for so long as that run said. PROCESSES are\n"
        "those of open calls, also of one that waits; 0 where they cannot be counted.\n"
        "Listed are those of one state directory: `casemate run --help` says which.\n"
        "\n"
        "Exit status: 0, also when there is none; 125 when those of a backend could not be looked "
        "at: "
        "those of\nthe others are listed all the same.",
    .options = kOptions,
    .operands = ValueForm::text,
    .offered_operands = {},
};

int list(const ParsedLine& line, const Config& config) {
  refuse_operands(line);
  std::vector<SandboxRecord> sandboxes;
  NotLookedAt missed;
  for (const auto& backend : make_backends(config, make_log(line))) {
    for (SandboxRecord& sandbox : list_of(*backend, missed)) {
      if (line.has("--scope") && sandbox.key.scope != line.value_or("--scope", "")) continue;
      sandboxes.push_back(std::move(sandbox));
    }
  }
  // The newest last, where a person looks.
  std::ranges::sort(sandboxes, [](const SandboxRecord& a, const SandboxRecord& b) {
    return a.age != b.age ? a.age > b.age : a.id < b.id;
  });
  if (line.has("--json")) {
    json::array records;
    for (const SandboxRecord& sandbox : sandboxes) records.push_back(record(sandbox));
    write_all(1, serialise_json(records) + '\n');
    return missed.report();
  }
  std::vector<Row> rows = {{"ID", "BACKEND", "ISOLATION", "SCOPE", "THREAD", "AGENT", "KIND", "AGE",
                            "IDLE", "PROCESSES", "MEMORY"}};
  for (const SandboxRecord& sandbox : sandboxes) rows.push_back(row(sandbox));
  write_all(1, table(rows));
  return missed.report();
}

}  // namespace casemate::app
