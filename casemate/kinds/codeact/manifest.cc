#include "casemate/kinds/codeact/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <exception>
#include <optional>

#include "casemate/base/json.h"
#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/tool/refusals.h"

namespace casemate::codeact {
namespace {

std::uint64_t saturating_minus(std::uint64_t value, std::uint64_t less) {
  return value > less ? value - less : 0;
}

[[noreturn]] void refuse(std::string_view what) {
  throw ModelFacingRefusal(fmt::format(
      "{} {}; it has to be {{\"outputs\":[{{\"path\":\"NAME\"}}]}}.", kManifestName, what));
}

std::vector<std::string> parse_names(std::string_view text) {
  boost::json::value value;
  try {
    value = parse_json(text);
  } catch (const JsonError& error) {
    refuse(fmt::format("is not valid JSON ({})", error.what()));
  }
  const auto* object = value.if_object();
  if (object == nullptr) refuse("is not an object");
  const auto* outputs = object->if_contains("outputs");
  if (outputs == nullptr || !outputs->is_array()) refuse("has no list \"outputs\"");
  std::vector<std::string> names;
  for (const auto& entry : outputs->get_array()) {
    const auto* path = entry.is_object() ? entry.get_object().if_contains("path") : nullptr;
    if (path == nullptr || !path->is_string()) {
      refuse(fmt::format("has no string \"path\" in entry {}", names.size()));
    }
    names.emplace_back(path->get_string());
  }
  return names;
}

// `GuestFiles` in the words of the output family.
template <typename Operation>
auto translated(const Operation& operation) {
  try {
    return operation();
  } catch (const SandboxPathRefused&) {
    std::throw_with_nested(
        SandboxOutputNotConfined(fmt::format("{} is reached through a link", kManifestName)));
  } catch (const SandboxTransferCapExceeded&) {
    std::throw_with_nested(
        SandboxTransferCapExceeded(fmt::format("{} grew while it was read", kManifestName)));
  } catch (const SandboxFileError&) {
    std::throw_with_nested(
        SandboxOutputUnreachable(fmt::format("{} could not be read", kManifestName)));
  } catch (const SandboxTimeout&) {
    std::throw_with_nested(
        SandboxOutputUnreachable(fmt::format("{} could not be read in time", kManifestName)));
  } catch (const SandboxUnavailable&) {
    std::throw_with_nested(SandboxOutputUnreachable(
        fmt::format("{} could not be read: the sandbox is not available any more", kManifestName)));
  }
}

}  // namespace

TransferLimits Manifest::budget(TransferLimits limits) const {
  limits.max_files = saturating_minus(limits.max_files, 1);
  limits.max_total_bytes = saturating_minus(limits.max_total_bytes, bytes);
  return limits;
}

Manifest read_manifest(GuestFiles& files, std::string_view work_directory,
                       const TransferLimits& limits, const CallControl& control) {
  const auto entry =
      translated([&] { return files.stat_file(kManifestName, work_directory, control); });
  if (!entry) return {};
  if (entry->kind != EntryKind::file) {
    throw SandboxOutputNotRegular(fmt::format("{} is not a regular file", kManifestName));
  }
  if (!entry->size_bytes) {
    throw SandboxOutputSizeUnknown(fmt::format("the size of {} is not known", kManifestName));
  }
  const std::uint64_t ceiling =
      std::min({kMaxManifestBytes, limits.max_bytes_per_file, limits.max_total_bytes});
  if (*entry->size_bytes > ceiling) {
    throw SandboxTransferCapExceeded(fmt::format("{} has {} bytes; at most {} are read",
                                                 kManifestName, *entry->size_bytes, ceiling));
  }
  const std::string text = translated(
      [&] { return files.read_file(kManifestName, work_directory, *entry->size_bytes, control); });
  // A backend that buffers does not stop at the size that was said.
  if (text.size() > *entry->size_bytes) {
    throw SandboxTransferCapExceeded(fmt::format("{} grew while it was read", kManifestName));
  }
  return {.written = true, .names = parse_names(text), .bytes = text.size()};
}

}  // namespace casemate::codeact
