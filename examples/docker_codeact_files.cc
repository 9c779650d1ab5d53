// CodeAct in a container of Docker's or Podman's: a table of sales goes in, a chart comes out.
//
//   docker_codeact_files SALES.CSV OUT_DIR [IMAGE [ENGINE [STATE_DIR]]]
//
// IMAGE: one with python3 (python:3-slim). ENGINE: where it listens, as in DOCKER_HOST; empty: the
// first that is there. STATE_DIR: what this process shares with its containers; empty: the user's.
#include <boost/json.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/backends/docker/docker_backend.h"
#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/policy/router.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/sink.h"

namespace {

// As a model would write it when asked for a chart; an image need have nothing beside python3.
constexpr std::string_view kProgram = R"-(
import csv
from collections import Counter
from decimal import Decimal
from html import escape

revenue = Counter()
with open("sales.csv", newline="", encoding="utf-8") as file:
    for sale in csv.DictReader(file):
        revenue[sale["product"]] += int(sale["units"]) * Decimal(sale["unit_price"])

bars = []
for row, (product, total) in enumerate(revenue.most_common()):
    print(f"{product:<14}{total:>12.2f}")
    width = round(400 * total / max(revenue.values()))
    bars.append(f'<text x="5" y="{row * 30 + 20}">{escape(product)}</text>'
                f'<rect x="120" y="{row * 30 + 5}" width="{width}" height="20" fill="steelblue"/>')
with open("revenue.svg", "w", encoding="utf-8") as file:
    file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="530" height="{len(bars) * 30 + 5}">'
               + "".join(bars) + "</svg>\n")
)-";

std::string argument(int argc, char** argv, int number, const char* otherwise) {
  return argc > number ? argv[number] : otherwise;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: docker_codeact_files SALES.CSV OUT_DIR [IMAGE [ENGINE [STATE_DIR]]]\n";
    return 2;
  }
  const casemate::Log log = [](casemate::LogLevel level, std::string_view text) {
    if (level >= casemate::LogLevel::warning) std::cerr << text << '\n';
  };
  casemate::DockerBackendOptions engine;
  engine.image = argument(argc, argv, 3, "python:3-slim");
  engine.host = argument(argc, argv, 4, "");
  engine.state_dir = argument(argc, argv, 5, "");
  engine.progress = [](std::string_view step) { std::cerr << step << '\n'; };
  engine.log = log;
  const casemate::SandboxRouter router(
      {std::make_shared<casemate::DockerBackend>(std::move(engine))},
      {.min_isolation = casemate::Isolation::container, .log = log});

  // The model sees one name, sales.csv, and may hand back what it names; where the file lies here
  // and where outputs land is the host's business.
  casemate::CodeactToolOptions options;
  options.file_store = std::make_shared<casemate::NamedFilesStore>(
      std::vector<std::pair<std::string, std::filesystem::path>>{{"sales.csv", argv[1]}});
  options.output_sink = casemate::make_file_system_sink(argv[2]);
  options.outputs = casemate::CodeactOutputs::declared;
  options.log = log;
  const casemate::CallerContext caller{[] { return "shop"; }, [] { return "report"; }};
  const auto tools = casemate::make_codeact_tools(router, "analyst", caller, std::move(options));

  const auto scope = router.scope("shop", "report");
  const boost::json::object arguments{
      {"code", kProgram}, {"files", {"sales.csv"}}, {"outputs", {"revenue.svg"}}};
  const casemate::ToolResult result = tools.at(0).invoke(boost::json::serialize(arguments), {});
  std::cout << result.text << '\n';
  for (const casemate::LandedArtifact& landed : result.artifacts) {
    std::cout << "landed: " << *landed.handle << '\n';
  }
  return result.is_error || result.artifacts.empty() ? 1 : 0;
} catch (const casemate::SandboxError& refusal) {
  std::cerr << refusal.code() << ": " << refusal.message() << '\n' << refusal.hint() << '\n';
  return 1;
}
