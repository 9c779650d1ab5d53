#include "apps/casemate/mcp_server.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/casemate/check_only.h"
#include "apps/casemate/host_tools.h"
#include "apps/casemate/out_directory.h"
#include "casemate/base/utf8.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/mcp/conversation.h"
#include "casemate/mcp/conversation_sink.h"
#include "casemate/transfer/file_store.h"

namespace casemate::app {

namespace {

CodeactToolOptions tool_options(const McpOptions& options, const Log& log) {
  const RunOptions& sandbox = options.sandbox;
  CodeactToolOptions tool;
  if (options.unsafe_shared_store) tool.unsafe_shared_store.emplace();
  tool.outputs = options.outputs;
  refuse_denied_host_tools(sandbox.host_tools, sandbox.denied_identities);
  tool.host_tools = make_host_tools(sandbox.host_tools, log);
  tool.image = sandbox.image;
  tool.environment = sandbox.environment;
  tool.exec_timeout = sandbox.timeout;
  tool.egress_allow = sandbox.egress_allow;
  tool.files_in = sandbox.files_in;
  tool.files_out = sandbox.files_out;
  tool.resources = sandbox.resources;
  tool.labels = sandbox.labels;
  tool.log = log;
  return tool;
}

SandboxSpec spec_of(const McpOptions& options, const CodeactToolOptions& tool) {
  return make_spec(options.sandbox, options.outputs, tool.host_tools);
}

std::vector<Tool> make_tools(const McpOptions& options, const SandboxRouter& router,
                             CodeactToolOptions tool) {
  return make_codeact_tools(router, options.sandbox.key.agent_dir,
                            mcp::caller_context(options.sandbox.key.scope), std::move(tool));
}

std::shared_ptr<const FileStore> make_store(const McpOptions& options) {
  if (!options.files) return nullptr;
  return std::make_shared<const DirectoryFileStore>(*options.files);
}

}  // namespace

mcp::ServerOptions make_mcp_server(const McpOptions& options, const Backends& backends,
                                   const Log& log) {
  CodeactToolOptions tool = tool_options(options, log);
  const SandboxRouter router = make_router(options.sandbox, backends, spec_of(options, tool), log);
  const bool reaches_out = tool.host_tools != nullptr || !tool.egress_allow.empty();
  const auto store = make_store(options);
  tool.file_store = store;
  std::optional<OutDirectory> made;
  std::shared_ptr<mcp::ConversationSink> sink;
  if (options.out_dir) {
    refuse_unusable(*options.out_dir);
    made.emplace(*options.out_dir);
    sink = std::make_shared<mcp::ConversationSink>(
        *options.out_dir,
        FileSystemSinkOptions{options.sandbox.overwrite ? Overwrite::yes : Overwrite::no, {}});
    // The tool's own check knows a sink of one directory only.
    if (store && !options.unsafe_shared_store) refuse_overlap(sink->root(), *store);
    tool.output_sink = sink;
  }
  mcp::ServerOptions server;
  for (Tool& one : make_tools(options, router, std::move(tool))) {
    server.tools.push_back(
        {std::move(one), reaches_out ? mcp::OpenWorld::yes : mcp::OpenWorld::no});
  }
  if (sink) {
    server.read_artifact = [sink](const LandedArtifact& artifact, std::uint64_t max_bytes) {
      return sink->read(artifact, max_bytes);
    };
    server.max_artifact_bytes = options.sandbox.files_out.max_bytes_per_file;
  }
  server.media_types = options.media_types;
  server.conversations.handles = options.handles;
  server.conversations.idle = options.idle;
  server.conversations.end = [router, sink,
                              scope = options.sandbox.key.scope](std::string_view thread_id) {
    router.dispose_scope(scope, thread_id);
    if (sink) sink->end(thread_id);
  };
  server.log = log;
  if (made) made->keep();
  return server;
}

void check_mcp_server(const McpOptions& options, const Backends& backends, const Log& log) {
  CodeactToolOptions tool = tool_options(options, log);
  tool.file_store = make_store(options);
  if (options.out_dir) {
    refuse_unusable(*options.out_dir);
    tool.output_sink = sink_for_check();
  }
  const SandboxSpec spec = spec_of(options, tool);
  make_tools(options, make_router(options.sandbox, backends, spec, log), std::move(tool));
}

std::string backend_to_serve(const McpOptions& options, const Backends& backends, const Log& log) {
  if (options.sandbox.backend) return *options.sandbox.backend;
  const SandboxSpec spec = spec_of(options, tool_options(options, log));
  const auto found = first_available(options.sandbox, backends, spec, log);
  if (found) {
    for (const std::string& why : found->passed_over) write_log(log, LogLevel::warning, why);
  }
  return found ? found->name : backend_of(options.sandbox, backends, spec);
}

std::string in_force(const McpOptions& options) {
  return fmt::format("serving MCP; floor {}, backend {}, scope {}, agent {}",
                     to_string(options.sandbox.min_isolation), *options.sandbox.backend,
                     escape_for_display(options.sandbox.key.scope),
                     escape_for_display(options.sandbox.key.agent_dir));
}

}  // namespace casemate::app
