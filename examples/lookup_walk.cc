// One question that takes four stages of look-ups, walked twice: by host tool calls from one
// program, and by the model itself, one tool call after another. The model is scripted, so that
// both walks are the same every time; what it would think costs nothing here.
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/registry.h"
#include "casemate/host_tools/run.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/policy/router.h"

namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr const char* kQuestion =
    "What did the stores of Oregon take in July, and which product brought in most?";

// -- The host's data: four tables, each known to one function only --------------------------------

constexpr std::int64_t kDays = 31;
constexpr std::int64_t kStoresOfAState = 5;
constexpr std::int64_t kProducts = 6;

json::value states(const json::object&) {
  json::array all;
  std::int64_t id = 3100;
  for (const char* name : {"Idaho", "Nevada", "Oregon", "Utah", "Washington"}) {
    all.push_back(json::object{{"id", id += 7}, {"name", name}});
  }
  return all;
}

json::value stores(const json::object& arguments) {
  json::array all;
  for (std::int64_t i = 0; i < kStoresOfAState; ++i) {
    const std::int64_t id = arguments.at("state_id").as_int64() * 10 + i * 3;
    all.push_back(json::object{{"id", id}, {"name", "Store " + std::to_string(i + 1)}});
  }
  return all;
}

json::value sales(const json::object& arguments) {
  const std::int64_t store = arguments.at("store_id").as_int64();
  json::array rows;
  for (std::int64_t day = 1; day <= kDays; ++day) {
    const std::int64_t product = 810 + (store + day * 5) % kProducts * 13;
    rows.push_back(json::object{
        {"day", day}, {"product_id", product}, {"units", 1 + (store * 31 + day * 17) % 40}});
  }
  return rows;
}

json::value product(const json::object& arguments) {
  const std::int64_t id = arguments.at("product_id").as_int64();
  return json::object{
      {"id", id},
      {"name", "Product " + std::string(1, static_cast<char>('A' + (id - 810) / 13))},
      {"price_cents", 199 + id * 37 % 5000}};
}

casemate::HostTool tool(const char* name, const char* description, const char* argument,
                        std::function<json::value(const json::object&)> function) {
  json::object properties;
  json::array required;
  if (argument != nullptr) {
    properties[argument] = {{"type", "integer"}};
    required.emplace_back(argument);
  }
  const json::object schema = {{"type", "object"},
                               {"properties", properties},
                               {"required", required},
                               {"additionalProperties", false}};
  return {.name = name,
          .description = description,
          .function = [function = std::move(function)](
                          const json::object& arguments,
                          const casemate::HostToolContext&) { return function(arguments); },
          .parameters = json::serialize(schema),
          // Our own tables, read with the application's authority; nothing leaves by an id.
          .declaration = casemate::HostToolDeclaration{.source = casemate::SourceIntegrity::trusted,
                                                       .sink = std::nullopt,
                                                       .identity = casemate::Identity::app}};
}

std::shared_ptr<casemate::HostToolRegistry> make_registry() {
  auto registry = std::make_shared<casemate::HostToolRegistry>();
  registry->register_tool(tool("states", "All states: id, name.", nullptr, states));
  registry->register_tool(tool("stores", "Stores of a state: id, name.", "state_id", stores));
  registry->register_tool(
      tool("sales", "July's sales of a store: day, product_id, units.", "store_id", sales));
  registry->register_tool(tool("product", "A product: name, price_cents.", "product_id", product));
  return registry;
}

// -- What both walks are measured by
// ---------------------------------------------------------------

struct Walk {
  int rounds = 0;       // of the model
  int model_calls = 0;  // tool calls that the model wrote
  int host_calls = 0;   // look-ups in the host's tables
  double milliseconds = 0;
  std::size_t bytes = 0;  // calls and results, which the model has to read again in every round
  int copied = 0;         // figures out of a result that the model wrote into a call
  std::string answer;

  // A call that the model wrote. The figures in it can only come out of earlier results.
  void writes(const std::string& call, const json::object& arguments) {
    ++model_calls;
    bytes += call.size();
    for (const auto& [name, value] : arguments) copied += value.is_number() ? 1 : 0;
  }
  void reads(const std::string& result) { bytes += result.size(); }
};

std::string in_words(std::int64_t total_cents, const std::string& best, std::int64_t best_cents) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << static_cast<double>(total_cents) / 100
       << " in all; most with " << best << ": " << static_cast<double>(best_cents) / 100;
  return text.str();
}

// -- One program, which walks by itself
// ------------------------------------------------------------

constexpr const char* kProgram = R"-(from casemate_tools import call
state = next(s for s in call("states") if s["name"] == "Oregon")
units = {}
for store in call("stores", state_id=state["id"]):
    for row in call("sales", store_id=store["id"]):
        units[row["product_id"]] = units.get(row["product_id"], 0) + row["units"]
taken = {}
for number, count in units.items():
    product = call("product", product_id=number)
    taken[product["name"]] = count * product["price_cents"]
best = max(taken, key=taken.get)
print(f"{sum(taken.values()) / 100:.2f} in all; most with {best}: {taken[best] / 100:.2f}")
)-";

Walk by_one_program(const casemate::SandboxRouter& router) {
  const casemate::CallerContext caller{[] { return "shop"; }, [] { return "question-1"; }};
  const auto tools =
      casemate::make_codeact_tools(router, "analyst", caller, {.host_tools = make_registry()});
  const auto scope = router.scope("shop", "question-1");
  Walk walk;
  const auto began = Clock::now();
  ++walk.rounds;
  const json::object arguments = {{"code", kProgram}};
  const std::string call = json::serialize(arguments);
  walk.writes(call, arguments);
  const casemate::ToolResult result = tools.at(0).invoke(call, {});
  walk.reads(result.text);
  if (result.is_error) throw casemate::SandboxUnavailable(result.text);
  walk.host_calls = static_cast<int>(
      json::parse(result.structured).as_object().at("host_tool_calls").to_number<int>());
  ++walk.rounds;  // the answer is what the program printed
  walk.answer = result.text.substr(result.text.find('\n') + 1);
  walk.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  return walk;
}

// -- The model, one stage a round
// ------------------------------------------------------------------

Walk by_the_model() {
  casemate::HostToolRun run(make_registry(), {});
  Walk walk;
  const auto call = [&](const char* name, const json::object& arguments) {
    const std::string text = json::serialize(arguments);
    walk.writes(name + text, arguments);
    ++walk.host_calls;
    const casemate::HostToolAnswer answer = run.dispatch(name, text);
    if (!answer.ok()) throw casemate::SandboxUnavailable(answer.text());
    walk.reads(answer.text());
    return json::parse(answer.text());
  };
  const auto began = Clock::now();
  ++walk.rounds;
  std::int64_t state = 0;
  const json::value all_states = call("states", {});
  for (const json::value& each : all_states.as_array()) {
    if (each.at("name") == "Oregon") state = each.at("id").as_int64();
  }
  ++walk.rounds;
  const json::value its_stores = call("stores", {{"state_id", state}});
  ++walk.rounds;  // all stores at once: a model may write several calls in one round
  std::map<std::int64_t, std::int64_t> units;
  for (const json::value& store : its_stores.as_array()) {
    const json::value rows = call("sales", {{"store_id", store.at("id")}});
    for (const json::value& row : rows.as_array()) {
      units[row.at("product_id").as_int64()] += row.at("units").as_int64();
    }
  }
  ++walk.rounds;
  std::int64_t total = 0;
  std::pair<std::int64_t, std::string> best;
  for (const auto& [id, count] : units) {
    const json::value found = call("product", {{"product_id", id}});
    const std::int64_t cents = count * found.at("price_cents").as_int64();
    total += cents;
    best = std::max(best, {cents, std::string(found.at("name").as_string())});
  }
  ++walk.rounds;  // 155 rows to add up, which a model does worse than this
  walk.answer = in_words(total, best.second, best.first);
  walk.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  return walk;
}

void print(const Walk& program, const Walk& model) {
  const auto row = [](const char* what, auto of_program, auto of_model) {
    std::cout << std::left << std::setw(34) << what << std::right << std::setw(14) << of_program
              << std::setw(14) << of_model << '\n';
  };
  std::cout << kQuestion << "\n\n" << std::fixed << std::setprecision(1);
  row("", "one program", "the model");
  row("rounds of the model", program.rounds, model.rounds);
  row("calls that the model wrote", program.model_calls, model.model_calls);
  row("look-ups", program.host_calls, model.host_calls);
  row("wall time, ms (without the model)", program.milliseconds, model.milliseconds);
  row("bytes through the transcript", program.bytes, model.bytes);
  row("figures copied by the model", program.copied, model.copied);
  std::cout << "\none program: " << program.answer << "\nthe model:   " << model.answer << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    casemate::LinuxBackendOptions options;
    if (argc > 1) options.state_dir = argv[1];  // where sandboxes are kept; /run/casemate if not
    const casemate::SandboxRouter router({std::make_shared<casemate::LinuxBackend>(options)},
                                         {.min_isolation = casemate::Isolation::container});
    print(by_one_program(router), by_the_model());
    return 0;
  } catch (const casemate::SandboxError& refusal) {
    std::cerr << refusal.code() << ": " << refusal.message() << '\n' << refusal.hint() << '\n';
    return 1;
  }
}
