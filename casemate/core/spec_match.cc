#include "casemate/core/spec_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/core/host_tool_fold.h"
#include "casemate/core/limits.h"
#include "casemate/core/resource_match.h"

namespace casemate {
namespace {

using Refused = std::optional<PendingRefusal>;

template <typename Value>
std::set<Value> missing(const std::set<Value>& wanted, const std::set<Value>& offered) {
  std::set<Value> rest;
  std::ranges::set_difference(wanted, offered, std::inserter(rest, rest.end()));
  return rest;
}

std::string kind_of(const SandboxSpec& spec) { return "kind " + quoted(spec.kind); }

std::string backend_of(const BackendDeclarations& declared) {
  return "backend " + quoted(declared.name);
}

std::string ladder() { return fmt::format("{}", fmt::join(isolation_ladder(), " < ")); }

Refused refuse_unknown_rung(const BackendDeclarations& declared) {
  if (declared.isolation && is_known(*declared.isolation)) return std::nullopt;
  const std::string claim = declared.isolation ? fmt::format("an unknown isolation (number {})",
                                                             static_cast<int>(*declared.isolation))
                                               : "no isolation";
  return pending<SandboxBackendNotPermitted>(
      fmt::format("{} declares {}, which is refused at any floor; the ladder is {}",
                  backend_of(declared), claim, ladder()),
      "have the backend declare the rung that it provides");
}

// -- Step 3 ---------------------------------------------------------------------------------------

Refused match_isolation(const SandboxSpec& spec, Isolation host_floor,
                        const BackendDeclarations& declared) {
  if (spec.min_isolation && !is_known(*spec.min_isolation)) {
    return pending<SandboxBackendNotPermitted>(
        fmt::format("{} asks for an unknown isolation (number {}), which {} cannot be measured "
                    "against; the ladder is {}",
                    kind_of(spec), static_cast<int>(*spec.min_isolation), backend_of(declared),
                    ladder()),
        "have the spec ask for a rung of the ladder, or for none");
  }
  if (Refused refused = match_host_floor(host_floor, declared)) return refused;
  if (!spec.min_isolation || meets_floor(*declared.isolation, *spec.min_isolation)) {
    return std::nullopt;
  }
  const std::string_view asked = to_string(*spec.min_isolation);
  return pending<SandboxBackendNotPermitted>(
      fmt::format("{} declares isolation '{}', but {} asks for at least '{}'", backend_of(declared),
                  to_string(*declared.isolation), kind_of(spec), asked),
      fmt::format("select a backend at '{}' or above, or lower the spec's min_isolation if '{}' is "
                  "boundary enough for it",
                  asked, to_string(*declared.isolation)));
}

// -- Step 4 ---------------------------------------------------------------------------------------

Refused match_capabilities(const SandboxSpec& spec, Isolation,
                           const BackendDeclarations& declared) {
  const CapabilitySet lacking = missing(spec.requires_capabilities, declared.capabilities);
  if (lacking.empty() && spec.requires_capabilities.contains(Capability::host_tools) &&
      spec.host_tools && declared.host_tool_transport == HostToolTransport::none) {
    return pending<SandboxCapabilityNotSupported>(
        fmt::format("{} requires host_tools, for which {} declares no transport", kind_of(spec),
                    backend_of(declared)),
        "have the backend declare how calls travel, or select another");
  }
  if (lacking.empty()) return std::nullopt;
  return pending<SandboxCapabilityNotSupported>(
      fmt::format("{} requires {}, which {} does not declare; it declares {}", kind_of(spec),
                  join_names(lacking), backend_of(declared), join_names(declared.capabilities)),
      fmt::format("select a backend that declares {}, or drop it from the spec's "
                  "requires_capabilities",
                  join_names(lacking)));
}

// -- Step 5 ---------------------------------------------------------------------------------------

Refused match_os_family(const SandboxSpec& spec, Isolation, const BackendDeclarations& declared) {
  if (!spec.requires_os_family || declared.os_families.contains(*spec.requires_os_family)) {
    return std::nullopt;
  }
  const std::string_view family = to_string(*spec.requires_os_family);
  return pending<SandboxOsFamilyNotSupported>(
      fmt::format("{} requires OS family '{}', which {} does not declare; it declares {}",
                  kind_of(spec), family, backend_of(declared), join_names(declared.os_families)),
      fmt::format("select a backend whose guests are '{}', or drop requires_os_family if the kind "
                  "runs anywhere",
                  family));
}

// -- Step 6 ---------------------------------------------------------------------------------------

struct LimitField {
  std::string_view name;
  std::uint64_t TransferLimits::* value;
};

constexpr std::array<LimitField, 3> kLimitFields{{
    {"max_bytes_per_file", &TransferLimits::max_bytes_per_file},
    {"max_total_bytes", &TransferLimits::max_total_bytes},
    {"max_files", &TransferLimits::max_files},
}};

Refused refuse_malformed_limits(const BackendDeclarations& declared) {
  std::vector<std::string> zeros;
  for (const LimitField& field : kLimitFields) {
    if (declared.limits.files_in.*field.value == 0)
      zeros.push_back(fmt::format("files_in.{}", field.name));
  }
  for (const LimitField& field : kLimitFields) {
    if (declared.limits.files_out.*field.value == 0)
      zeros.push_back(fmt::format("files_out.{}", field.name));
  }
  if (zeros.empty()) return std::nullopt;
  return pending<SandboxTransferLimitsNotPermitted>(
      fmt::format("{} declares malformed transfer limits: 0 for {}; accepted is 1 or more",
                  backend_of(declared), fmt::join(zeros, ", ")),
      "have the backend declare the bytes and files that it can move; one that moves none leaves "
      "out the capability instead");
}

Refused match_direction(const SandboxSpec& spec, const BackendDeclarations& declared,
                        std::string_view direction, const TransferLimits& asked,
                        const TransferLimits& ceiling) {
  if (asked.within(ceiling)) return std::nullopt;
  std::vector<std::string> over;
  for (const LimitField& field : kLimitFields) {
    if (asked.*field.value > ceiling.*field.value) {
      over.push_back(
          fmt::format("{} {} over {}", field.name, asked.*field.value, ceiling.*field.value));
    }
  }
  return pending<SandboxTransferLimitsNotPermitted>(
      fmt::format("{} asks for more {} than {} declares: {}", kind_of(spec), direction,
                  backend_of(declared), fmt::join(over, ", ")),
      fmt::format("lower the spec's {} to the backend's, or select a backend that moves more",
                  direction));
}

Refused match_limits(const SandboxSpec& spec, Isolation, const BackendDeclarations& declared) {
  if (Refused refused = refuse_malformed_limits(declared)) return refused;
  const SandboxLimits asked = fold_host_tools(spec, declared.host_tool_transport);
  if (spec.requires_capabilities.contains(Capability::files_in)) {
    if (Refused refused =
            match_direction(spec, declared, "files_in", asked.files_in, declared.limits.files_in)) {
      return refused;
    }
  }
  const bool can_hand_files_out = spec.requires_capabilities.contains(Capability::files_out) ||
                                  !spec.declared_outputs.empty() || spec.outputs_named_at_call_time;
  if (!can_hand_files_out) return std::nullopt;
  return match_direction(spec, declared, "files_out", asked.files_out, declared.limits.files_out);
}

// -- Step 7 ---------------------------------------------------------------------------------------

Refused match_egress(const SandboxSpec& spec, Isolation, const BackendDeclarations& declared) {
  if (declared.egress_modes.contains(spec.egress)) return std::nullopt;
  const std::string_view mode = to_string(spec.egress);
  const std::string other_way =
      declared.egress_modes.empty()
          ? "mend this one, which enforces no mode and so can serve no spec"
          : fmt::format("have the spec ask for a mode that this one enforces ({})",
                        join_names(declared.egress_modes));
  return pending<SandboxEgressNotEnforced>(
      fmt::format("{} asks for egress '{}', which {} does not enforce; it enforces {}, and a mode "
                  "is served exactly or not at all",
                  kind_of(spec), mode, backend_of(declared), join_names(declared.egress_modes)),
      fmt::format("select a backend that enforces '{}', or {}", mode, other_way));
}

// -- Step 8 ---------------------------------------------------------------------------------------

Refused match_image(const SandboxSpec& spec, Isolation, const BackendDeclarations& declared) {
  for (const std::optional<std::string>& reference : {spec.image_id, spec.image}) {
    if (!reference) continue;
    const ImageForm form = image_form(*reference);
    if (declared.image_forms.contains(form)) continue;
    return pending<SandboxImageNotSupported>(
        fmt::format("{} asks for image {} of form '{}', which {} does not take; it takes {}",
                    kind_of(spec), quoted(*reference), to_string(form), backend_of(declared),
                    join_names(declared.image_forms)),
        fmt::format("name an image of a form that it takes or none for the backend's own, or "
                    "select a backend that takes '{}'",
                    to_string(form)));
  }
  return std::nullopt;
}

// -- Step 9 ---------------------------------------------------------------------------------------

Refused match_resources(const SandboxSpec& spec, Isolation, const BackendDeclarations& declared) {
  std::vector<std::string> unheld;
  std::string why;
  for (const UnheldBound& bound : unheld_bounds(spec.resources, declared)) {
    if (!bound.stated) continue;
    unheld.push_back(fmt::format("{} {}", bound.field, bound.value));
    const auto known = declared.why_not_enforceable.find(bound.limit);
    if (known == declared.why_not_enforceable.end()) continue;
    const std::string reason = escape_for_display(known->second);
    if (why.find(reason) == why.npos) why += (why.empty() ? "" : "; ") + reason;
  }
  if (unheld.empty()) return std::nullopt;
  const bool share_only =
      declared.enforceable_limits.contains(Limit::cpu) && !declared.cpu_seconds_enforceable;
  return pending<SandboxLimitNotEnforceable>(
      fmt::format("{} states {}, which {} cannot hold{}; it holds {}{}", kind_of(spec),
                  fmt::join(unheld, ", "), backend_of(declared),
                  why.empty() ? "" : " here (" + why + ")", join_names(declared.enforceable_limits),
                  share_only ? " (of cpu the share, not the seconds)" : ""),
      "select a backend that holds it, or leave it unstated: the sandbox then runs without and "
      "says so in limits_not_held");
}

}  // namespace

std::string quoted(std::string_view text) {
  return fmt::format("'{}'", escape_for_display(text, 120));
}

std::optional<PendingRefusal> match_host_floor(Isolation host_floor,
                                               const BackendDeclarations& declared) {
  if (Refused refused = refuse_unknown_rung(declared)) return refused;
  if (meets_floor(*declared.isolation, host_floor)) return std::nullopt;
  return pending<SandboxBackendNotPermitted>(
      fmt::format("{} declares isolation '{}', below this host's floor '{}'", backend_of(declared),
                  to_string(*declared.isolation), to_string(host_floor)),
      fmt::format("select a backend at '{}' or above, or lower min_isolation to '{}' if that is "
                  "boundary enough",
                  to_string(host_floor), to_string(*declared.isolation)));
}

std::optional<PendingRefusal> match_declarations(const SandboxSpec& spec, Isolation host_floor,
                                                 const BackendDeclarations& declared) {
  using Step = Refused (*)(const SandboxSpec&, Isolation, const BackendDeclarations&);
  // The contract's order. A spec that breaks several is refused by the earliest.
  constexpr std::array<Step, 7> kSteps{
      match_isolation,     // 3
      match_capabilities,  // 4
      match_os_family,     // 5
      match_limits,        // 6
      match_egress,        // 7
      match_image,         // 8
      match_resources,     // 9
  };
  for (const Step step : kSteps) {
    if (Refused refused = step(spec, host_floor, declared)) return refused;
  }
  return std::nullopt;
}

}  // namespace casemate
