#include "casemate/kinds/codeact/codeact.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/description.h"
#include "casemate/kinds/codeact/request_checks.h"
#include "casemate/kinds/codeact/result_text.h"
#include "casemate/kinds/codeact/run_json.h"
#include "casemate/tool/refusals.h"
#include "casemate/tool/sandboxed_tool.h"

namespace casemate {
namespace {

void refuse(const std::string& message) { throw InvalidArgument(message); }

// Caps under which a call could never do what the tool offers.
void check_caps(const CodeactToolOptions& options) {
  const TransferLimits& in = options.files_in;
  const TransferLimits& out = options.files_out;
  if (in.max_files < 1) refuse("files_in.max_files is 0: the program itself is one file");
  if (options.outputs == CodeactOutputs::declared && out.max_files < 1) {
    refuse("outputs are declared, but files_out.max_files is 0");
  }
  if (options.outputs != CodeactOutputs::manifest) return;
  if (out.max_files < 2) {
    refuse(
        fmt::format("outputs are listed in {}, which is one file itself, but "
                    "files_out.max_files is {}; at least 2 are needed",
                    kManifestName, out.max_files));
  }
  const std::uint64_t bytes = std::min(out.max_bytes_per_file, out.max_total_bytes);
  if (bytes < kMinManifestBytes) {
    refuse(fmt::format("the caps on files out leave {} bytes for {}; the shortest takes {}", bytes,
                       kManifestName, kMinManifestBytes));
  }
}

void check_options(const CodeactToolOptions& options) {
  codeact::check_timeout(options.exec_timeout);
  check_caps(options);
  if (options.outputs == CodeactOutputs::none && options.output_sink) {
    throw InvalidArgument(
        "there is an output sink, but the outputs mode is none: nothing would "
        "ever reach it",
        "choose declared or manifest, or give no sink");
  }
  if (options.file_store && options.output_sink && !options.unsafe_shared_store) {
    refuse_overlap(*options.output_sink, *options.file_store);
  }
}

std::vector<std::string> names_in(const boost::json::object& arguments, std::string_view name) {
  std::vector<std::string> names;
  if (const auto* list = arguments.if_contains(name)) {
    for (const auto& entry : list->get_array()) names.emplace_back(entry.get_string());
  }
  return names;
}

// The provider failed under a program that had begun.
ToolResult lost(const std::exception& failure, const CodeactRun& run,
                const GuestCall::Owner& owner) {
  write_log(owner.log, LogLevel::warning, fmt::format("{}: {}", owner.tool, line_for_log(failure)));
  const std::string sentence = sentence_for_model(failure);
  ToolResult result;
  result.text = codeact::lost_run_text(run, sentence);
  result.structured = codeact_lost_run_json(failure, without_error_prefix(sentence));
  result.is_error = true;
  return result;
}

ToolResult execute(const boost::json::object& arguments, const ToolCall& call,
                   const SandboxToolSession& session, const CodeactToolOptions& options) {
  const SandboxKey key = session.key();
  const CodeactWiring wiring{
      .router = session.router(),
      .spec = session.spec(),
      .outputs = options.outputs,
      .file_store = options.file_store,
      .output_sink = options.output_sink,
      .capture_bytes = options.capture_bytes,
      .owner = session.owner(),
      .unsafe_shared_store = options.unsafe_shared_store,
      .host_tools = options.host_tools,
  };
  CodeactRequest request;
  request.code = arguments.at("code").get_string();
  request.files = names_in(arguments, "files");
  request.outputs = names_in(arguments, "outputs");
  request.environment = options.environment;
  request.timeout = options.exec_timeout;
  request.on_output = call.on_output;
  request.progress = call.progress;

  try {
    CodeactRun run = run_codeact(wiring, key, request, call.control);
    ToolResult result;
    result.text = codeact::result_text(run);
    result.structured = codeact_run_json(run, ArtifactPaths::hidden);
    result.artifacts = std::move(run.artifacts);
    return result;
  } catch (const SandboxError& failure) {
    const auto* run = dynamic_cast<const CodeactRun*>(&failure);
    if (run == nullptr) throw;
    return lost(failure, *run, wiring.owner);
  }
}

}  // namespace

std::vector<Tool> make_codeact_tools(const SandboxRouter& router, std::string agent_dir,
                                     CallerContext context, CodeactToolOptions options) {
  if (!router.enabled()) return {};
  check_options(options);

  SandboxedToolOptions tool;
  tool.router = router;
  tool.context = std::move(context);
  tool.agent_dir = std::move(agent_dir);
  tool.name = kExecuteCodeToolName;
  tool.spec = codeact_sandbox_spec({
      .image = options.image,
      .image_id = options.image_id,
      .outputs = options.outputs,
      .host_tools = options.host_tools,
      .files_in = options.files_in,
      .files_out = options.files_out,
      .egress_allow = options.egress_allow,
      .resources = options.resources,
      .labels = options.labels,
      .keep_idle = options.keep_idle,
  });
  if (tool.spec.host_tools) {
    const HostToolAggregate together = options.host_tools->aggregate();
    if (together.requires_approval) tool.approval_mode = ApprovalMode::always_require;
    if (together.has_undeclared || !together.outbound_caps.empty()) {
      tool.also_carries_out = AlsoCarriesOut::yes;
    }
  }
  tool.source_integrity = std::nullopt;
  tool.outbound_max_confidentiality = options.outbound_max_confidentiality;
  tool.output_sink = options.output_sink;
  tool.on_reclaim_failure = options.on_reclaim_failure;
  tool.log = options.log;

  const auto shared = std::make_shared<const CodeactToolOptions>(std::move(options));
  return sandboxed_tool(
      [&shared](const SandboxSpec& spec) {
        const auto files =
            shared->file_store ? codeact::SharedFiles::yes : codeact::SharedFiles::no;
        return SandboxedToolParts{
            .description =
                codeact::tool_description(spec, files, shared->outputs, shared->host_tools.get()),
            .parameters = codeact::tool_parameters(files, shared->outputs),
            .body =
                [shared](const boost::json::object& arguments, const ToolCall& call,
                         SandboxToolSession& session) {
                  return execute(arguments, call, session, *shared);
                },
        };
      },
      std::move(tool));
}

}  // namespace casemate
