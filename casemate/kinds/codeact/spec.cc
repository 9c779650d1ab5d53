#include "casemate/kinds/codeact/spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate {
namespace {

struct Spelling {
  CodeactOutputs value;
  std::string_view text;
};

constexpr Spelling kSpellings[] = {
    {CodeactOutputs::none, "none"},
    {CodeactOutputs::declared, "declared"},
    {CodeactOutputs::manifest, "manifest"},
};

}  // namespace

std::string_view to_string(CodeactOutputs value) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.value == value) return spelling.text;
  }
  return "unknown";
}

CodeactOutputs parse_codeact_outputs(std::string_view text) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.text == text) return spelling.value;
  }
  throw InvalidArgument(fmt::format("outputs '{}' is not one of none, declared, manifest",
                                    escape_for_display(text, 80)));
}

SandboxSpec codeact_sandbox_spec(const CodeactSpecOptions& options) {
  SandboxSpec spec;
  spec.kind = kCodeactKind;
  spec.image = options.image;
  spec.image_id = options.image_id;
  spec.labels = options.labels;
  spec.keep_idle = options.keep_idle;
  spec.requires_capabilities = {Capability::exec, Capability::files_in};
  if (options.outputs != CodeactOutputs::none) {
    spec.requires_capabilities.insert(Capability::files_out);
  }
  if (options.host_tools && !options.host_tools->empty()) {
    // files_out too, as the contract has it, also where calls travel over a channel.
    spec.requires_capabilities.insert({Capability::host_tools, Capability::files_out});
    spec.identities = options.host_tools->aggregate().identities;
    spec.host_tools = options.host_tools->surface();
  }
  spec.outputs_named_at_call_time = options.outputs != CodeactOutputs::none;
  spec.files_in = options.files_in;
  spec.files_out = options.files_out;
  spec.resources = options.resources;
  for (const HostPattern& host : options.egress_allow) {
    if (std::ranges::find(spec.egress_allow, host) == spec.egress_allow.end()) {
      spec.egress_allow.push_back(host);
    }
  }
  spec.egress = spec.egress_allow.empty() ? Egress::closed : Egress::allowlist;
  return spec;
}

}  // namespace casemate
