#include "casemate/tool/sandboxed_tool.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "casemate/core/guest_path.h"
#include "casemate/tool/implementation.h"
#include "casemate/tool/refusals.h"
#include "casemate/transfer/collect.h"
#include "casemate/transfer/sink.h"

namespace casemate {
namespace {

// Before the router is asked: how the parts of the wiring fit each other.
void check_outputs(const SandboxedToolOptions& options) {
  const SandboxSpec& spec = options.spec;
  if (options.output_sink && options.declarations) {
    throw InvalidArgument(
        fmt::format("tool '{}' has an output sink and explicit declarations: the sink's part of "
                    "the declarations would be lost",
                    options.name),
        "leave the declarations to be derived");
  }
  if (spec_lands_artifacts(spec) && !options.output_sink) throw missing_sink_refusal(spec.kind);
  const bool names_outputs = !spec.declared_outputs.empty() || spec.outputs_named_at_call_time;
  if (names_outputs && !spec.requires_capabilities.contains(Capability::files_out)) {
    throw InvalidArgument(
        fmt::format("kind '{}' names outputs but does not require the capability files_out",
                    spec.kind),
        "add files_out to what the spec requires");
  }
}

}  // namespace

SandboxKey SandboxToolSession::key() const {
  const auto thread_id = options_.context.current_thread_id();
  if (!thread_id) {
    throw ModelFacingRefusal(
        fmt::format("{} needs a conversation to run in, and there is none.", options_.name));
  }
  return {options_.context.current_scope(), *thread_id, options_.agent_dir};
}

std::shared_ptr<Sandbox> SandboxToolSession::acquire(const SandboxKey& key,
                                                     const CallControl& control) const {
  return router().acquire(key, options_.spec, control);
}

GuestCall SandboxToolSession::open_call(const SandboxKey& key, const CallControl& control) const {
  return GuestCall::open(router(), key, options_.spec, control, owner());
}

const SandboxRouter& SandboxToolSession::router() const { return *options_.router; }

const SandboxSpec& SandboxToolSession::spec() const { return options_.spec; }

GuestCall::Owner SandboxToolSession::owner() const {
  return {options_.name, options_.on_reclaim_failure, options_.log};
}

std::vector<Tool> sandboxed_tool(const SandboxedToolBuilder& build, SandboxedToolOptions options) {
  if (!options.router || !options.router->enabled()) return {};
  check_outputs(options);
  options.router->ensure_can_serve(options.spec);
  SandboxedToolParts parts = build(options.spec);
  ToolParameters parameters = ToolParameters::parse(parts.parameters);
  // A call's directory is `<work_dir>/<id>`: at the root it would stand among the image's own.
  if (normalise_guest_path(options.spec.work_dir) == "/") {
    throw InvalidArgument(fmt::format("tool '{}' has the work directory \"/\"", options.name),
                          "give it a directory of its own, for example /workspace");
  }
  if (!options.declarations) {
    options.declarations = sandbox_tool_declarations(
        options.spec, options.source_integrity, options.outbound_max_confidentiality,
        options.output_sink.get(), options.also_carries_out);
  }

  const auto shared = std::make_shared<const SandboxedToolOptions>(std::move(options));
  auto implementation = std::make_shared<Tool::Implementation>(Tool::Implementation{
      .name = shared->name,
      .description = std::move(parts.description),
      .parameters = std::move(parameters),
      .approval_mode = shared->approval_mode,
      .declarations = *shared->declarations,
      .log = shared->log,
      .run =
          [shared, body = std::move(parts.body)](const boost::json::object& arguments,
                                                 const ToolCall& call) {
            SandboxToolSession session(*shared);
            return body(arguments, call, session);
          },
  });
  return {Tool(std::move(implementation))};
}

ToolDeclarations sandbox_tool_declarations(
    const SandboxSpec& spec, std::optional<SourceIntegrity> source_integrity,
    const std::optional<std::string>& outbound_max_confidentiality, const OutputSink* output_sink,
    AlsoCarriesOut also_carries_out) {
  ToolDeclarations declarations;
  if (source_integrity) declarations["source_integrity"] = to_string(*source_integrity);
  const bool carries_out = !spec.egress_allow.empty() || spec.egress == Egress::unrestricted ||
                           (output_sink != nullptr && spec_lands_artifacts(spec)) ||
                           also_carries_out == AlsoCarriesOut::yes;
  if (outbound_max_confidentiality && carries_out) {
    declarations["max_allowed_confidentiality"] = *outbound_max_confidentiality;
  }
  return declarations;
}

}  // namespace casemate
