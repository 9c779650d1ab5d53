#include "casemate/host_tools/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/registered.h"

namespace casemate {
namespace {

void require_positive(std::string_view what, std::uint64_t value) {
  if (value == 0) throw InvalidArgument(fmt::format("{} is 0; it takes at least 1", what));
}

std::optional<Identity> identity_of(const HostTool& tool) {
  return tool.declaration ? tool.declaration->identity.get() : std::optional(Identity::app);
}

void check_policy(const HostToolRegistryOptions& options, const HostTool& tool) {
  const std::string name = escape_for_display(tool.name, 120);
  if (options.require_declared == RequireDeclared::yes && !tool.declaration) {
    throw HostToolNotDeclared(
        fmt::format("host tool '{}' has no declaration, and this registry takes none without",
                    name),
        "declare its source, sink and identity");
  }
  const auto identity = identity_of(tool);
  if (identity && !options.allowed_identities.contains(*identity)) {
    throw HostToolIdentityNotAllowed(
        fmt::format("host tool '{}' acts as {}; allowed is {}", name, to_string(*identity),
                    join_names(options.allowed_identities)),
        "leave it out, or allow the identity");
  }
}

void check_texts(const HostTool& tool) {
  const std::string name = escape_for_display(tool.name, 120);
  if (tool.name.empty()) throw InvalidArgument("a host tool has an empty name");
  if (!is_valid_utf8(tool.name)) {
    throw InvalidArgument(fmt::format("the name of host tool '{}' is not UTF-8", name));
  }
  if (tool.name.size() > kMaxHostToolNameBytes) {
    throw InvalidArgument(fmt::format("the name of host tool '{}' has {} bytes; one may have {}",
                                      name, tool.name.size(), kMaxHostToolNameBytes),
                          "no program could say it; give the tool a shorter name");
  }
  if (!is_valid_utf8(tool.description)) {
    throw InvalidArgument(fmt::format("the description of host tool '{}' is not UTF-8", name));
  }
}

// Arguments are one object: a schema of anything else lets no call or every call pass.
void require_schema_of_object(const HostTool& tool) {
  const boost::json::value root = parse_json(tool.parameters, {.max_bytes = JsonSchema::kMaxBytes});
  const boost::json::object* schema = root.if_object();
  const boost::json::value* type = schema == nullptr ? nullptr : schema->if_contains("type");
  if (type != nullptr && *type == "object") return;
  throw InvalidArgument(fmt::format("the parameters of host tool '{}' are no schema of an object",
                                    escape_for_display(tool.name, 120)),
                        R"(say {"type":"object", ...} at its top)");
}

JsonSchema parse_parameters(const HostTool& tool) {
  const std::string name = escape_for_display(tool.name, 120);
  try {
    JsonSchema schema = JsonSchema::parse(tool.parameters);
    require_schema_of_object(tool);
    return schema;
  } catch (const JsonSchemaError& error) {
    throw InvalidArgument(
        fmt::format("the parameters of host tool '{}' are no schema: {}", name, error.what()),
        tool.parameters.empty()
            ? R"(for a tool without arguments: {"type":"object","additionalProperties":false})"
            : "leave out what cannot be held and check it in the function; docs/host-tools.md "
              "lists "
              "the keywords that are held");
  }
}

void check_bounds(const HostTool& tool) {
  const std::string name = escape_for_display(tool.name, 120);
  constexpr std::chrono::seconds kLongest(kMaxTimeoutSeconds);
  if (tool.timeout && (tool.timeout->count() <= 0 || *tool.timeout > kLongest)) {
    throw InvalidArgument(
        fmt::format("the timeout of host tool '{}' is {} ns; it must be above 0 and at most {} s",
                    name, tool.timeout->count(), kLongest.count()),
        "state a time within that range, or none for the run's own end");
  }
  if (tool.max_concurrency) {
    require_positive(fmt::format("max_concurrency of host tool '{}'", name), *tool.max_concurrency);
  }
}

}  // namespace

HostToolRegistry::HostToolRegistry(HostToolRegistryOptions options)
    : state_(std::make_shared<State>()) {
  require_positive("max_host_tool_calls_per_run", options.max_host_tool_calls_per_run);
  require_positive("response_limits.max_bytes_per_file",
                   options.response_limits.max_bytes_per_file);
  require_positive("response_limits.max_total_bytes", options.response_limits.max_total_bytes);
  require_positive("response_limits.max_files", options.response_limits.max_files);
  for (const Identity identity : options.allowed_identities) {
    check_declaration({.source = std::nullopt, .sink = std::nullopt, .identity = identity});
  }
  state_->options = std::move(options);
}

HostToolRegistry::~HostToolRegistry() = default;

void HostToolRegistry::register_tool(HostTool tool, const std::source_location& where) {
  const std::string shown = escape_for_display(tool.name, 120);
  if (state_->sealed) {
    throw InvalidArgument(
        fmt::format("host tool '{}' comes too late: what the registered tools mean together was "
                    "already derived",
                    shown),
        "register every tool before the registry is used");
  }
  if (!tool.function) throw InvalidArgument(fmt::format("host tool '{}' has no function", shown));
  check_texts(tool);
  if (state_->tools.contains(tool.name)) {
    throw InvalidArgument(fmt::format("there are two host tools '{}'", shown));
  }
  if (tool.declaration) check_declaration(*tool.declaration);
  check_policy(state_->options, tool);
  JsonSchema schema = parse_parameters(tool);
  check_bounds(tool);
  state_->options.notices.notify(
      "host_tools",
      "programs in a sandbox may call functions of this host: each call goes around the host's own "
      "middleware, with arguments that the program chose",
      where);
  std::string name = tool.name;
  state_->tools.emplace(std::move(name), std::unique_ptr<const RegisteredHostTool>(
                                             new RegisteredHostTool{std::move(tool), schema, {}}));
}

std::vector<std::string> HostToolRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tool] : state_->tools) names.push_back(name);
  return names;
}

std::vector<HostToolRegistry::Summary> HostToolRegistry::summaries() const {
  std::vector<Summary> summaries;
  for (const auto& [name, registered] : state_->tools) {
    summaries.push_back({name, registered->tool.description, registered->tool.parameters});
  }
  return summaries;
}

std::size_t HostToolRegistry::size() const { return state_->tools.size(); }

const RegisteredHostTool* HostToolRegistry::resolve(std::string_view name) const {
  const auto found = state_->tools.find(name);
  return found == state_->tools.end() ? nullptr : found->second.get();
}

std::optional<HostToolDeclaration> HostToolRegistry::declaration_for(std::string_view name) const {
  const RegisteredHostTool* found = resolve(name);
  return found == nullptr ? std::nullopt : found->tool.declaration;
}

HostToolAggregate HostToolRegistry::aggregate() {
  state_->sealed = true;
  HostToolAggregate aggregate;
  const auto weaken = [&](SourceIntegrity source) {
    aggregate.result_integrity =
        aggregate.result_integrity ? std::min(*aggregate.result_integrity, source) : source;
  };
  for (const auto& [name, registered] : state_->tools) {
    const auto& declaration = registered->tool.declaration;
    if (const auto identity = identity_of(registered->tool)) aggregate.identities.insert(*identity);
    if (!declaration) {
      aggregate.has_undeclared = true;
      weaken(SourceIntegrity::untrusted);
      continue;
    }
    if (const auto& source = declaration->source.get()) weaken(*source);
    if (const auto& sink = declaration->sink.get()) aggregate.outbound_caps.insert(*sink);
  }
  aggregate.requires_approval = aggregate.identities.contains(Identity::user);
  return aggregate;
}

bool HostToolRegistry::sealed() const { return state_->sealed; }

HostToolSurface HostToolRegistry::surface() const {
  return {state_->options.max_host_tool_calls_per_run, state_->options.response_limits};
}

const HostToolRegistryOptions& HostToolRegistry::options() const { return state_->options; }

std::size_t HostToolRegistry::abandoned_calls() const { return state_->abandoned; }

}  // namespace casemate
