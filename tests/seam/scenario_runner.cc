#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <regex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/typed.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/policy/router.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/sink.h"
#include "tests/seam/scenarios.h"
#include "tests/support/scratch.h"

namespace casemate::seam {
namespace {

namespace json = boost::json;

constexpr char kScope[] = "seam";
constexpr int kMeeting = 4;
constexpr std::chrono::seconds kPatience{60};  // a bound on a hang, not a budget

constexpr char kMeasure[] = R"(
import casemate_tools
for _ in range(220):
    casemate_tools.call("tick")
)";
constexpr std::size_t kWarmUp = 20;

struct Sum {
  std::int64_t a = 0;
  std::int64_t b = 0;
  static auto fields() { return std::tuple(field("a", &Sum::a), field("b", &Sum::b)); }
};

// Where calls wait until all of them are there, so that each shows that it did not wait in line.
class Meeting {
 public:
  std::int64_t join() {
    std::unique_lock lock(mutex_);
    const int round = arrived_++ / kMeeting;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kPatience, [&] { return arrived_ >= (round + 1) * kMeeting; })) {
      throw std::runtime_error("the others did not come");
    }
    return kMeeting;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
};

// When calls came, by this machine's clock: a sandbox's own may be coarse.
struct Ticks {
  std::mutex mutex;
  std::vector<std::chrono::steady_clock::time_point> at;
};

std::shared_ptr<HostToolRegistry> make_registry(const std::shared_ptr<Ticks>& ticks) {
  auto registry = std::make_shared<HostToolRegistry>(HostToolRegistryOptions{
      .max_host_tool_calls_per_run = 300, .response_limits = {4 * kMiB, 16 * kMiB, 1000}});
  registry->register_tool(
      {.name = "echo",
       .description = "Returns its arguments.",
       .function = [](const json::object& arguments, const HostToolContext&) { return arguments; },
       .parameters = R"({"type":"object"})"});
  registry->register_tool(
      {.name = "fail",
       .description = "Throws.",
       .function = [](const json::object&, const HostToolContext&) -> json::value {
         throw std::runtime_error("a secret of the host's");
       },
       .parameters = R"({"type":"object"})"});
  registry->register_tool(
      {.name = "meet",
       .description = "Waits for others.",
       .function = [meeting = std::make_shared<Meeting>()](
                       const json::object&, const HostToolContext&) { return meeting->join(); },
       .parameters = R"({"type":"object"})"});
  registry->register_tool(
      {.name = "tick",
       .description = "Counts.",
       .function = [ticks](const json::object&, const HostToolContext&) -> json::value {
         const std::lock_guard lock(ticks->mutex);
         ticks->at.push_back(std::chrono::steady_clock::now());
         return nullptr;
       },
       .parameters = R"({"type":"object"})"});
  registry->register_tool(
      typed_host_tool<Sum>("add", "a + b", [](const Sum& sum) { return sum.a + sum.b; }));
  return registry;
}

std::string pseudo_random(std::size_t bytes) {
  std::string content(bytes, '\0');
  std::uint32_t state = 1;
  for (char& byte : content) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return content;
}

std::shared_ptr<const FileStore> make_store() {
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  return std::make_shared<InMemoryStore>(
      std::map<std::string, std::string>{{"table.csv", "name,price\ntea,4.20\n"},
                                         {"bytes.bin", all_bytes},
                                         {"\u00dcbersicht.txt", "Gr\u00fc\u00dfe\n"},
                                         {"large.bin", pseudo_random(2'500'000)}});
}

std::string wiring_name(Wiring wiring) {
  return wiring == Wiring::plain        ? "plain"
         : wiring == Wiring::host_tools ? "host tools"
                                        : "cpu seconds";
}

// The time that a scenario had, told as the one that it states.
std::string as_stated(std::string text, std::chrono::seconds stated, int patience) {
  const std::string had = fmt::format("limit of {} s", stated.count() * patience);
  if (const std::size_t at = text.find(had); at != std::string::npos) {
    text.replace(at, had.size(), fmt::format("limit of {} s", stated.count()));
  }
  return text;
}

// Calls have a directory of their own, whose name is drawn.
std::string without_ids(const std::string& text) {
  static const std::regex call("/workspace/[0-9a-f]{12}");
  return std::regex_replace(text, call, "/workspace/CALL");
}

}  // namespace

struct ScenarioRunner::State {
  std::shared_ptr<SandboxBackend> backend;
  std::optional<std::string> image;
  std::filesystem::path scratch;
  int patience;
  SandboxRouter router;
  std::shared_ptr<const FileStore> store = make_store();
  std::shared_ptr<Ticks> ticks = std::make_shared<Ticks>();
  std::shared_ptr<HostToolRegistry> registry = make_registry(ticks);

  ToolResult run(const Scenario& scenario) const {
    CodeactToolOptions options;
    options.image = image;
    options.file_store = store;
    options.output_sink = make_file_system_sink(scratch / scenario.name);
    options.outputs = CodeactOutputs::declared;
    options.exec_timeout = scenario.timeout * patience;
    options.capture_bytes = scenario.capture_bytes;
    // Not stated: where one cannot be held, that shows.
    options.resources.memory_bytes.value = 96 * kMiB;
    options.resources.disk_bytes.value = 16 * kMiB;
    options.resources.pids.value = 40;
    options.resources.open_files.value = 200;
    if (scenario.wiring == Wiring::cpu_seconds) options.resources.cpu_seconds = stated(1);
    if (scenario.wiring == Wiring::host_tools) options.host_tools = registry;
    options.log = [](LogLevel, std::string_view) {};
    const CallerContext caller{[] { return std::string(kScope); },
                               [&] { return wiring_name(scenario.wiring); }};
    json::object arguments{{"code", scenario.program}};
    arguments["files"] = json::array(scenario.files.begin(), scenario.files.end());
    arguments["outputs"] = json::array(scenario.outputs.begin(), scenario.outputs.end());
    return make_codeact_tools(router, "agent", caller, std::move(options))
        .at(0)
        .invoke(json::serialize(arguments), {});
  }
};

ScenarioRunner::ScenarioRunner(std::shared_ptr<SandboxBackend> backend,
                               std::optional<std::string> image, std::filesystem::path scratch,
                               int patience)
    : state_(std::make_unique<State>(
          State{.backend = backend,
                .image = std::move(image),
                .scratch = std::move(scratch),
                .patience = patience,
                .router = SandboxRouter({backend}, {.min_isolation = Isolation::process})})) {}

ScenarioRunner::~ScenarioRunner() {
  for (const Wiring wiring : {Wiring::plain, Wiring::host_tools, Wiring::cpu_seconds}) {
    state_->router.dispose_scope(kScope, wiring_name(wiring));
  }
}

std::string ScenarioRunner::transcript(const Scenario& scenario) {
  ToolResult result;
  try {
    result = state_->run(scenario);
  } catch (const SandboxError& refusal) {
    return "refused: " + std::string(refusal.code()) + "\n";
  }
  std::string lines = as_stated(result.text, scenario.timeout, state_->patience);
  lines += "\n-- told beside it\n";
  lines += "is_error: " + std::string(result.is_error ? "true" : "false") + "\n";
  if (!result.structured.empty()) {
    const json::object told = json::parse(result.structured).as_object();
    for (const auto& [name, value] : told) {
      // The streams stand above; the rest differs from run to run.
      if (name == "stdout" || name == "stderr" || name == "sandbox" || name == "timing_ms" ||
          name == "cpu_ms" || name == "peak_memory_bytes") {
        continue;
      }
      lines += std::string(name) + ": " + json::serialize(value) + "\n";
    }
  }
  const std::filesystem::path landed = state_->scratch / scenario.name;
  if (std::filesystem::exists(landed)) {
    for (const std::string& name : tree(landed)) {
      lines += "landed: " + name + " " + sha256_hex(get(landed / name)).substr(0, 16) + "\n";
    }
  }
  return without_ids(lines);
}

std::optional<double> ScenarioRunner::host_tool_microseconds() {
  if (!state_->backend->declarations().capabilities.contains(Capability::host_tools)) return {};
  state_->run({.name = "measure", .wiring = Wiring::host_tools, .program = kMeasure});
  const std::lock_guard lock(state_->ticks->mutex);
  std::vector<double> between;
  for (std::size_t i = kWarmUp; i + 1 < state_->ticks->at.size(); ++i) {
    const auto time = state_->ticks->at[i + 1] - state_->ticks->at[i];
    between.push_back(std::chrono::duration<double, std::micro>(time).count());
  }
  if (between.empty()) return {};
  std::ranges::nth_element(between,
                           between.begin() + static_cast<std::ptrdiff_t>(between.size() / 2));
  return between[between.size() / 2];
}

}  // namespace casemate::seam
