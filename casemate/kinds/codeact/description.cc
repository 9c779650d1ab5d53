#include "casemate/kinds/codeact/description.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string_view>
#include <vector>

#include "casemate/base/json.h"

namespace casemate::codeact {
namespace {

constexpr std::string_view kHead =
    "Runs a Python 3 program in a sandbox and returns what it printed.";
constexpr std::string_view kRules =
    "Only what the program prints comes back; the value of an expression does not, so print every "
    "result that is needed. Each call is a new process in a new, empty current directory: "
    "variables and files of earlier calls are gone.";
constexpr std::string_view kFilesParagraph =
    "Shared files: name them in `files`, and each is copied into the current directory under that "
    "very name before the program starts. Read them there, for example open(\"data.csv\"). A "
    "shared Python file can be imported by its name, unless Python has already loaded a module of "
    "that name. Changes to the copies do not reach the originals.";

std::string network_sentence(const SandboxSpec& spec) {
  switch (spec.egress) {
    case Egress::closed:
      return "It has no network.";
    case Egress::unrestricted:
      return "It can use the network.";
    case Egress::allowlist:
      break;
  }
  std::vector<std::string> hosts;
  hosts.reserve(spec.egress_allow.size());
  for (const HostPattern& host : spec.egress_allow) hosts.push_back(host.text());
  if (hosts.empty()) return "It has no network.";
  return fmt::format("It can reach these hosts and no others: {}.", fmt::join(hosts, ", "));
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= kMiB && bytes % kMiB == 0) return fmt::format("{} MiB", bytes / kMiB);
  return fmt::format("{} bytes", bytes);
}

std::string caps_text(const TransferLimits& limits, std::uint64_t files) {
  return fmt::format("At most {} {}, {} each and {} in all.", files, files == 1 ? "file" : "files",
                     size_text(limits.max_bytes_per_file), size_text(limits.max_total_bytes));
}

std::string outputs_paragraph(const SandboxSpec& spec, CodeactOutputs outputs) {
  const TransferLimits& limits = spec.files_out;
  switch (outputs) {
    case CodeactOutputs::none:
      return {};
    case CodeactOutputs::declared:
      return fmt::format(
          "Files to keep: name them in `outputs` and have the program write each, under that very "
          "name, in its current directory; they are saved when it has ended. {}",
          caps_text(limits, limits.max_files));
    case CodeactOutputs::manifest:
      break;
  }
  return fmt::format(
      "Files to keep: have the program write them in its current directory, and beside them "
      "{0}, a JSON object that lists them: {{\"outputs\": [{{\"path\": \"chart.png\"}}]}}. They "
      "are saved when it has ended; {0} itself is not. {1}",
      kManifestName, caps_text(limits, limits.max_files - 1));
}

struct Argument {
  std::string_view name;
  std::string_view description;
  bool list;
};

std::vector<Argument> arguments_of(SharedFiles files, CodeactOutputs outputs) {
  std::vector<Argument> arguments{{"code", "the program, Python 3 source text.", false}};
  if (files == SharedFiles::yes) {
    arguments.push_back({"files", "names of shared files to copy in (optional).", true});
  }
  if (outputs == CodeactOutputs::declared) {
    arguments.push_back(
        {"outputs", "names of files that the program will write (optional).", true});
  }
  return arguments;
}

std::string arguments_paragraph(SharedFiles files, CodeactOutputs outputs) {
  std::string text = "Args:";
  for (const Argument& argument : arguments_of(files, outputs)) {
    text += fmt::format("\n  {}: {}", argument.name, argument.description);
  }
  return text;
}

std::string returns_paragraph(CodeactOutputs outputs) {
  std::string text =
      "Returns:\n  The program's stdout and stderr, apart from each other, its exit code unless "
      "that is 0, and notes on limits that it met.";
  if (outputs != CodeactOutputs::none) text += " Names where each file to keep was saved.";
  return text;
}

}  // namespace

std::string tool_description(const SandboxSpec& spec, SharedFiles files, CodeactOutputs outputs) {
  std::vector<std::string> paragraphs{
      fmt::format("{} {} {}", kHead, network_sentence(spec), kRules)};
  if (files == SharedFiles::yes) paragraphs.emplace_back(kFilesParagraph);
  if (outputs != CodeactOutputs::none) paragraphs.push_back(outputs_paragraph(spec, outputs));
  paragraphs.push_back(arguments_paragraph(files, outputs));
  paragraphs.push_back(returns_paragraph(outputs));
  return fmt::format("{}", fmt::join(paragraphs, "\n\n"));
}

std::string tool_parameters(SharedFiles files, CodeactOutputs outputs) {
  boost::json::object properties;
  for (const Argument& argument : arguments_of(files, outputs)) {
    boost::json::object property;
    property["type"] = argument.list ? "array" : "string";
    if (argument.list) property["items"] = {{"type", "string"}};
    property["description"] = argument.description;
    properties[argument.name] = std::move(property);
  }
  boost::json::object schema;
  schema["type"] = "object";
  schema["properties"] = std::move(properties);
  schema["required"] = boost::json::array{"code"};
  schema["additionalProperties"] = false;
  return serialise_json(schema);
}

}  // namespace casemate::codeact
