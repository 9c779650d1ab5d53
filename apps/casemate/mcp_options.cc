#include "apps/casemate/mcp_options.h"

#include <algorithm>
#include <array>
#include <utility>

#include "apps/casemate/mcp_http.h"
#include "apps/casemate/run_option_table.h"
#include "apps/casemate/values.h"
#include "apps/casemate/verbs.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

// Those of `run` that are about one program, or say something else here.
constexpr auto kNotTaken =
    std::to_array<std::string_view>({"--file", "--output", "--manifest", "--out-dir", "--check",
                                     "--stdin", "--thread", "--keep", "--idle-ttl", "--json"});

constexpr auto kOwnOptions = std::to_array<OptionSpec>({
    {"--files", "DIR", kOnce, "none",
     "a model may have files of DIR shared with its program, by the names they have there; links "
     "in it are not followed, regular files only",
     "--files data", ValueForm::directory},
    {"--out-dir", "DIR", kOnce, "none",
     "programs may hand files back: the model names them, and they land in DIR, each conversation "
     "in a directory of its own; made when it is not there. What landed can be read by its "
     "address, as a resource",
     "--out-dir out", ValueForm::directory},
    {"--manifest", "", kOnce, "off",
     "with --out-dir: the program lists its outputs in outputs.json instead of the model",
     "--manifest --out-dir out"},
    {"--unsafe-shared-store", "", kOnce, "refuse",
     "--files and --out-dir may be the same or lie in one another: what one program wrote, a later "
     "one is then given as your own file",
     "--unsafe-shared-store"},
    {"--no-mime", "", kOnce, "by a fixed table of extensions",
     "say no media type of what landed, and send all of it as bytes", "--no-mime"},
    {"--conversations", "", kOnce, "off: each stateless call has a sandbox of its own",
     "a client without sessions (2026-07-28) may go on in the sandbox of an earlier call, by an "
     "unguessable handle that its result has; at most 64 at a time",
     "--conversations"},
    {"--idle-ttl", "SECONDS", kOnce, "600",
     "how long a conversation by handle may go unused before it ends; at most 604800",
     "--idle-ttl 60", ValueForm::number},
    {"--check", "", kOnce, "off", "match everything, serve nothing: exit 0 or the refusal",
     "--check"},
});

constexpr bool is_taken(const OptionSpec& option) {
  return std::ranges::find(kNotTaken, option.name) == kNotTaken.end();
}

constexpr auto join_options() {
  std::array<OptionSpec,
             kOwnOptions.size() + kMcpHttpOptions.size() + kRunOptions.size() - kNotTaken.size()>
      all{};
  auto end = std::ranges::copy(kOwnOptions, all.begin()).out;
  end = std::ranges::copy(kMcpHttpOptions, end).out;
  end = std::ranges::copy_if(kRunOptions, end, is_taken).out;
  // Each name that is not taken is one of run's.
  return end == all.end() ? all : throw "an option is named that `run` does not have";
}

constexpr auto kOptions = join_options();

void read_outputs(const ParsedLine& line, McpOptions& options) {
  if (line.has("--out-dir")) {
    options.out_dir = line.value_or("--out-dir", "");
    if (options.out_dir->empty()) {
      throw InvalidArgument("--out-dir is empty", "give the directory in which outputs land");
    }
    options.outputs = line.has("--manifest") ? CodeactOutputs::manifest : CodeactOutputs::declared;
    return;
  }
  for (const char* option : {"--manifest", "--overwrite"}) {
    if (!line.typed(option)) continue;
    throw InvalidArgument(std::string(option) + " needs --out-dir",
                          "give the directory in which outputs land, for example --out-dir out");
  }
}

}  // namespace

constexpr VerbSpec kMcpVerb = {
    .name = "mcp",
    .synopsis = "mcp [OPTIONS]",
    .summary = "serve execute_code to a client of the Model Context Protocol",
    .notes =
        "Speaks on standard input and output, a message a line, until the input ends; with --http\n"
        "over HTTP until it is stopped. What it has to say to you goes to standard error.\n"
        "\n"
        "Clients that begin with `initialize` (2024-11-05 to 2025-11-25) are one conversation a\n"
        "process, over HTTP a session, with one sandbox; those of 2026-07-28 get a sandbox a\n"
        "call. Two conversations never share one.\n"
        "\n"
        "Exit status: 0 at the end of the input; 130, 143 or 129 stopped by SIGINT, SIGTERM or "
        "SIGHUP;\n"
        "141 standard output was closed; 125 when Casemate refused, after one line\n"
        "`casemate: error: CODE: ...`.\n"
        "\n"
        "Defaults of your own stand in casemate.toml, under [mcp].",
    .options = kOptions,
};

McpOptions read_mcp_options(const ParsedLine& line, const HostVariable& host_variable) {
  McpOptions options;
  options.sandbox = read_sandbox_options(line, host_variable);
  if (line.has("--files")) {
    options.files = line.value_or("--files", "");
    if (options.files->empty()) {
      throw InvalidArgument("--files is empty", "give the directory whose files may be shared");
    }
  }
  read_outputs(line, options);
  options.unsafe_shared_store = line.has("--unsafe-shared-store");
  if (line.has("--no-mime")) options.media_types = mcp::MediaTypes::none;
  if (line.has("--conversations")) options.handles = mcp::Handles::yes;
  if (line.typed("--idle-ttl") && options.handles == mcp::Handles::no) {
    throw InvalidArgument("--idle-ttl needs --conversations", "give both, or leave it out");
  }
  options.idle = std::chrono::ceil<std::chrono::milliseconds>(
      parse_seconds("--idle-ttl", line.value_or("--idle-ttl", "600")));
  return options;
}

}  // namespace casemate::app
