#include "casemate/kinds/codeact/description.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string_view>
#include <vector>

#include "casemate/base/json.h"
#include "casemate/base/one_line.h"

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

std::string network_sentence(const SandboxSpec& spec, bool has_tools) {
  const std::string_view beside = has_tools ? " Beside that it can call the host tools below." : "";
  if (spec.egress == Egress::unrestricted) {
    return fmt::format("It can use the network.{}", beside);
  }
  if (spec.egress == Egress::closed || spec.egress_allow.empty()) {
    return has_tools ? "It has no network of its own; what it needs from outside it gets from the "
                       "host tools below."
                     : "It has no network.";
  }
  std::vector<std::string> hosts;
  hosts.reserve(spec.egress_allow.size());
  for (const HostPattern& host : spec.egress_allow) hosts.push_back(host.text());
  return fmt::format("It can reach these hosts and no others: {}.{}", fmt::join(hosts, ", "),
                     beside);
}

std::string host_tools_paragraph(const HostToolRegistry& registry) {
  const std::vector<HostToolRegistry::Summary> tools = registry.summaries();
  const std::uint64_t calls = registry.surface().max_calls;
  std::string text = fmt::format(
      "Host tools: functions that the program itself calls, {} at most in one run. `import "
      "casemate_tools`; `casemate_tools.call({}, ...)`, with the arguments by keyword, returns the "
      "value, and what the program only passes on need not be printed. A call that the host "
      "refuses "
      "raises casemate_tools.HostToolError. There are:",
      calls == 1 ? "once" : fmt::format("{} times", calls),
      serialise_json(boost::json::value(tools.front().name)));
  for (const auto& tool : tools) {
    text += fmt::format("\n  {}: {} Arguments: {}", serialise_json(boost::json::value(tool.name)),
                        one_line(tool.description), serialise_json(parse_json(tool.parameters)));
  }
  return text;
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

std::string tool_description(const SandboxSpec& spec, SharedFiles files, CodeactOutputs outputs,
                             const HostToolRegistry* host_tools) {
  const bool has_tools = host_tools != nullptr && !host_tools->empty();
  std::vector<std::string> paragraphs{
      fmt::format("{} {} {}", kHead, network_sentence(spec, has_tools), kRules)};
  if (has_tools) paragraphs.push_back(host_tools_paragraph(*host_tools));
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
