#include "apps/casemate/run_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/casemate/run_option_table.h"
#include "apps/casemate/values.h"
#include "apps/casemate/verbs.h"
#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

Capability read_capability(std::string_view text) {
  // Its own sentence: a capability that became an egress mode.
  if (text == "network") return parse_capability(text);
  return parse_capability(one_of("--deny-capability", text, kCapabilities));
}

Isolation read_isolation(std::string_view text) {
  if (text == "none") return parse_isolation(text);
  return parse_isolation(one_of("--min-isolation", text, isolation_ladder()));
}

void read_program(const ParsedLine& line, RunOptions& options) {
  if (line.operands.size() > 1) {
    throw InvalidArgument(
        fmt::format("unexpected '{}' after PROGRAM", escape_for_display(line.operands[1])),
        "the program's own arguments stand behind --");
  }
  std::vector<std::string> words = line.operands;
  words.insert(words.end(), line.trailing.begin(), line.trailing.end());
  if (words.empty()) {
    throw InvalidArgument("no PROGRAM is given", "name a Python file, or - for standard input");
  }
  if (words[0].empty()) {
    throw InvalidArgument("PROGRAM is empty", "name a Python file, or - for standard input");
  }
  options.program = std::move(words[0]);
  options.arguments.assign(std::make_move_iterator(words.begin() + 1),
                           std::make_move_iterator(words.end()));
}

void read_files(const ParsedLine& line, RunOptions& options) {
  for (const std::string& text : line.values("--file")) {
    const auto equals = text.find('=');
    std::string path = equals == text.npos ? text : text.substr(equals + 1);
    std::string name =
        equals == text.npos ? path.substr(path.rfind('/') + 1) : text.substr(0, equals);
    if (name.empty() || path.empty()) {
      throw InvalidArgument(fmt::format("--file cannot be '{}'", escape_for_display(text)),
                            "give NAME=PATH or the PATH of a regular file");
    }
    options.files.emplace_back(std::move(name), std::move(path));
  }
}

void read_outputs(const ParsedLine& line, RunOptions& options) {
  options.outputs = line.values("--output");
  options.manifest = line.has("--manifest");
  options.overwrite = line.has("--overwrite");
  if (options.manifest && !options.outputs.empty()) {
    throw InvalidArgument("--output and --manifest exclude one another",
                          "name the outputs here or let the program list them, not both");
  }
  if (line.has("--out-dir")) {
    options.out_dir = line.value_or("--out-dir", "");
    if (options.out_dir->empty()) {
      throw InvalidArgument("--out-dir is empty", "give the directory in which outputs land");
    }
  } else if (options.manifest || !options.outputs.empty()) {
    throw InvalidArgument(
        fmt::format("{} needs --out-dir", options.manifest ? "--manifest" : "--output"),
        "give the directory in which outputs land, for example --out-dir out");
  }
  // A default that this run has no use for is nothing to speak of.
  if (!options.manifest && options.outputs.empty()) {
    if (!line.typed("--out-dir")) options.out_dir.reset();
    if (!line.typed("--overwrite")) options.overwrite = false;
  }
}

void read_bounds(const ParsedLine& line, RunOptions& options) {
  const auto given = [&line](std::string_view name) { return line.value_or(name, ""); };
  options.timeout = parse_seconds("--timeout", line.value_or("--timeout", "120"));
  Resources& resources = options.resources;
  if (line.has("--memory")) {
    resources.memory_bytes = stated(parse_size("--memory", given("--memory"), kMinMemoryBytes));
  }
  if (line.has("--pids")) {
    resources.pids = stated(parse_count("--pids", given("--pids"), kMinPids, kMaxPids));
  }
  if (line.has("--cpus")) resources.cpu_millis = stated(parse_cpus("--cpus", given("--cpus")));
  if (line.has("--disk")) {
    resources.disk_bytes = stated(parse_size("--disk", given("--disk"), kMinDiskBytes));
  }
  options.files_in =
      parse_transfer_limits("--files-in-limit", line.value_or("--files-in-limit", "8M,32M,64"));
  options.files_out =
      parse_transfer_limits("--files-out-limit", line.value_or("--files-out-limit", "8M,32M,8"));
}

void read_host_tools(const ParsedLine& line, RunOptions& options) {
  HostToolSettings& settings = options.host_tools;
  for (const std::string& text : line.values("--host-tool")) {
    auto [name, command] = parse_assignment("--host-tool", text, "NAME=COMMAND");
    if (command.empty()) {
      throw InvalidArgument(
          fmt::format("--host-tool '{}' has no command", escape_for_display(name)),
          "give NAME=COMMAND, for example upper=./upper");
    }
    if (std::ranges::find(settings.tools, name, &HostToolSetting::name) != settings.tools.end()) {
      throw InvalidArgument(
          fmt::format("--host-tool gives '{}' two commands", escape_for_display(name)),
          "give it once");
    }
    settings.tools.push_back({.name = std::move(name), .command = std::move(command)});
  }
  settings.max_calls = parse_count(
      "--max-host-tool-calls", line.value_or("--max-host-tool-calls", "16"), 1, kMaxHostToolCalls);
  settings.timeout =
      parse_seconds("--host-tool-timeout", line.value_or("--host-tool-timeout", "30"));
  settings.require_declared = line.has("--require-declared");
}

void read_labels(const ParsedLine& line, RunOptions& options) {
  for (const std::string& text : line.values("--label")) {
    auto [name, value] = parse_assignment("--label", text);
    if (!options.labels.emplace(name, std::move(value)).second) {
      throw InvalidArgument(fmt::format("--label gives '{}' two values", escape_for_display(name)),
                            "give it once");
    }
  }
}

void read_environment(const ParsedLine& line, const HostVariable& host_variable,
                      RunOptions& options) {
  for (const std::string& text : line.values("--env")) {
    if (text.find('=') != text.npos) {
      auto [name, value] = parse_assignment("--env", text);
      options.environment.insert_or_assign(std::move(name), std::move(value));
      continue;
    }
    auto value = text.empty() ? std::nullopt : host_variable(text);
    if (!value) {
      throw InvalidArgument(
          fmt::format("--env passes '{}', which is not set here", escape_for_display(text)),
          "set it, or give NAME=VALUE");
    }
    options.environment.insert_or_assign(text, std::move(*value));
  }
}

std::string key_part(const ParsedLine& line, std::string_view name, std::string_view fallback) {
  std::string value = line.value_or(name, fallback);
  if (value.empty()) {
    throw InvalidArgument(fmt::format("{} is empty", name), "a part of the key is never empty");
  }
  return value;
}

void read_thread(const ParsedLine& line, RunOptions& options) {
  options.own_key = !line.has("--thread");
  options.key.thread_id =
      options.own_key ? "run-" + random_hex(16) : key_part(line, "--thread", "");
}

void read_keep(const ParsedLine& line, RunOptions& options) {
  if (line.typed("--keep") && options.own_key) {
    throw InvalidArgument("--keep needs --thread",
                          "name the conversation that the next run goes on with, for example "
                          "--thread 42");
  }
  if (line.typed("--idle-ttl") && !line.has("--keep")) {
    throw InvalidArgument("--idle-ttl needs --keep", "give both, or leave it out");
  }
  const auto idle = parse_seconds("--idle-ttl", line.value_or("--idle-ttl", "600"));
  // A default that this run has no use for is nothing to speak of.
  if (!line.has("--keep") || options.own_key) return;
  options.keep = std::chrono::ceil<std::chrono::milliseconds>(idle);
}

}  // namespace

constexpr VerbSpec kRunVerb = {
    .name = "run",
    .synopsis = "run [OPTIONS] PROGRAM [-- ARG...]",
    .summary = "run one Python program in a sandbox",
    .notes =
        "PROGRAM is a file, or - for standard input; the ARGs are the program's own.\n"
        "\n"
        "The program starts in an empty directory with the shared files in it. Its standard "
        "output\n"
        "and error pass through byte for byte; on a terminal, control characters are shown, not\n"
        "obeyed. What Casemate says goes to standard error: one `saved NAME` or `missing NAME` "
        "line\n"
        "an output.\n"
        "\n"
        "Exit status: the program's own; 128+N for a signal; 124 timed out; 137 out of memory;\n"
        "130, 143 or 129 stopped by SIGINT, SIGTERM or SIGHUP; 141 standard output was closed;\n"
        "125 when Casemate refused or failed, after one line `casemate: error: CODE: ...`.\n"
        "A program may exit with these numbers by itself: only the status of --json tells.\n"
        "\n"
        "A limit that is given and cannot be held is refused; a default that cannot be held shows\n"
        "as limits_not_held in --json.\n"
        "\n"
        "Defaults of your own stand in casemate.toml, under [run]: the long options without "
        "dashes,\n"
        "`timeout = 60`, `output = [\"report.png\"]`, `overwrite = true`. An option given here "
        "wins.\n"
        "\n"
        "CASEMATE_STATE_DIR in the environment names, by an absolute path, the directory that "
        "holds sandboxes; those of\n"
        "the other backends are beside it. Default: /run/casemate for root, for other users\n"
        "$XDG_RUNTIME_DIR/casemate, or /tmp/casemate-UID where that is not set, as it is not in\n"
        "cron and after su: exec, ls and rm know the sandboxes of one such directory.\n"
        "CASEMATE_OCI_RUNTIME names the runtime of the oci backend (default: the first of crun,\n"
        "runc and runsc that is there).",
    .options = kRunOptions,
    .operands = ValueForm::path,
    .offered_operands = {},
    .trailing = "the program's own arguments stand",
};

RunOptions read_sandbox_options(const ParsedLine& line, const HostVariable& host_variable) {
  RunOptions options;
  options.verbose = line.has("-v");
  options.check = line.has("--check");
  options.overwrite = line.has("--overwrite");
  read_bounds(line, options);
  for (const std::string& text : line.values("--deny-capability")) {
    options.denied_capabilities.insert(read_capability(text));
  }
  for (const std::string& text : line.values("--deny-identity")) {
    options.denied_identities.insert(parse_identity(one_of("--deny-identity", text, kIdentities)));
  }
  read_host_tools(line, options);
  for (const std::string& text : line.values("--allow")) {
    options.egress_allow.push_back(HostPattern::parse(text));
  }
  if (line.has("--no-sni-check")) options.server_names = ServerNameCheck::no;
  read_labels(line, options);
  options.image = line.value_or("--image", "host");
  read_environment(line, host_variable, options);
  if (line.has("--backend")) options.backend = line.value_or("--backend", "");
  options.min_isolation = read_isolation(line.value_or("--min-isolation", "container"));
  options.key.scope = key_part(line, "--scope", "cli");
  options.key.agent_dir = key_part(line, "--agent", "default");
  return options;
}

RunOptions read_run_options(const ParsedLine& line, const HostVariable& host_variable) {
  RunOptions program;
  read_program(line, program);
  if (program.program == "-" && line.has("--stdin")) {
    throw InvalidArgument("- and --stdin both take standard input",
                          "read the program from a file to forward standard input to it");
  }
  RunOptions options = read_sandbox_options(line, host_variable);
  options.program = std::move(program.program);
  options.arguments = std::move(program.arguments);
  options.json = line.has("--json");
  options.forward_stdin = line.has("--stdin");
  read_files(line, options);
  read_outputs(line, options);
  read_thread(line, options);
  read_keep(line, options);
  return options;
}

void add_host_tools(RunOptions& options, const std::vector<HostToolSetting>& configured) {
  auto& tools = options.host_tools.tools;
  for (const HostToolSetting& tool : configured) {
    if (std::ranges::find(tools, tool.name, &HostToolSetting::name) == tools.end()) {
      tools.push_back(tool);
    }
  }
}

}  // namespace casemate::app
