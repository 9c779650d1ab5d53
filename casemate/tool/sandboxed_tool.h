#pragma once

// How a kind becomes a tool: the host's wiring in, the model's function out.

#include <boost/json/fwd.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/spec.h"
#include "casemate/policy/router.h"
#include "casemate/tool/caller_context.h"
#include "casemate/tool/guest_call.h"
#include "casemate/tool/tool.h"

namespace casemate {

class OutputSink;
struct SandboxedToolOptions;

// What the body of a sandboxed tool may ask for, made anew for each invocation. Throws refusals;
// the body lets them pass. Not thread-safe; lives as long as the invocation.
class SandboxToolSession {
 public:
  explicit SandboxToolSession(const SandboxedToolOptions& options) : options_(options) {}

  // Whose sandbox this invocation uses: scope and conversation of this moment, and the agent the
  // tool was made for. Throws `ModelFacingRefusal` naming the tool when there is no conversation
  // (the scope is then not asked for).
  SandboxKey key() const;

  // The sandbox of `key`, by the router's rules.
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const CallControl& control) const;

  // A call on the sandbox of `key`, closed when the invocation ends at the latest; see `GuestCall`.
  GuestCall open_call(const SandboxKey& key, const CallControl& control) const;

  const SandboxRouter& router() const;
  const SandboxSpec& spec() const;
  // For a `GuestCall` that the body opens by itself.
  GuestCall::Owner owner() const;

 private:
  const SandboxedToolOptions& options_;
};

// What a kind's builder hands back. `body` may throw any refusal; it is called from several threads
// at once.
struct SandboxedToolParts {
  std::string description;
  // JSON Schema as text; the keywords that `ToolParameters` knows.
  std::string parameters;
  std::function<ToolResult(const boost::json::object& arguments, const ToolCall& call,
                           SandboxToolSession& session)>
      body;
};

// Called at most once, and only where a sandbox is configured and can serve.
using SandboxedToolBuilder = std::function<SandboxedToolParts(const SandboxSpec& spec)>;

// Whether a tool carries something out of the sandbox by a road that the spec does not show.
enum class AlsoCarriesOut : std::uint8_t { no, yes };

struct SandboxedToolOptions {
  // Absent, or without a backend: there is no tool.
  std::optional<SandboxRouter> router{};
  CallerContext context{};
  // The third part of the key, fixed here.
  std::string agent_dir{};
  SandboxSpec spec{};
  std::string name{};
  ApprovalMode approval_mode = ApprovalMode::never_require;
  // Given whole, or derived by `sandbox_tool_declarations` when absent.
  std::optional<ToolDeclarations> declarations{};
  std::optional<SourceIntegrity> source_integrity = SourceIntegrity::trusted;
  std::optional<std::string> outbound_max_confidentiality{};
  std::shared_ptr<OutputSink> output_sink{};
  AlsoCarriesOut also_carries_out = AlsoCarriesOut::no;
  ReclaimCallback on_reclaim_failure{};
  Log log{};
};

// One tool, or none where no sandbox is configured. Throws, in this order: `InvalidArgument` for a
// sink beside explicit declarations (the sink's part would be lost), `SandboxOutputSinkRequired`
// for a spec that lands without a sink, `InvalidArgument` for outputs without the capability
// `files_out`, what `SandboxRouter::ensure_can_serve` throws, what `build` throws,
// `InvalidArgument` for a schema that is not understood or a work directory that is "/".
std::vector<Tool> sandboxed_tool(const SandboxedToolBuilder& build, SandboxedToolOptions options);

// Declarations by derivation: the source's integrity when stated, and the cap on confidentiality
// when one is given and something can leave: hosts on the list, unrestricted egress, a sink for
// outputs that land, or `also_carries_out`.
ToolDeclarations sandbox_tool_declarations(
    const SandboxSpec& spec,
    std::optional<SourceIntegrity> source_integrity = SourceIntegrity::trusted,
    const std::optional<std::string>& outbound_max_confidentiality = std::nullopt,
    const OutputSink* output_sink = nullptr, AlsoCarriesOut also_carries_out = AlsoCarriesOut::no);

}  // namespace casemate
