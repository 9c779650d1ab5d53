#include "casemate/kinds/codeact/request_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <set>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/limits.h"
#include "casemate/tool/refusals.h"
#include "casemate/transfer/artifact_name.h"
#include "casemate/transfer/collect.h"

namespace casemate::codeact {
namespace {

// Names quoted to help a model that got one wrong; more would fill its context.
constexpr std::size_t kMaxSuggestions = 20;

bool is_or_lies_in(std::string_view name, std::string_view directory) {
  return name == directory ||
         (name.starts_with(directory) && name.substr(directory.size()).starts_with('/'));
}

void refuse_reserved(std::string_view name, CodeactOutputs outputs) {
  if (outputs == CodeactOutputs::manifest && is_or_lies_in(name, kManifestName)) {
    throw ModelFacingRefusal(fmt::format(
        "the name '{}' is reserved for the list of outputs; choose another.", kManifestName));
  }
}

std::string_view base_name(std::string_view name) { return name.substr(name.rfind('/') + 1); }

std::string join_names(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::size_t index = 0; index < std::min(names.size(), kMaxSuggestions); ++index) {
    text += fmt::format("{}{}", index == 0 ? "" : ", ", escape_for_display(names[index]));
  }
  if (names.size() > kMaxSuggestions) {
    text += fmt::format(", and {} more", names.size() - kMaxSuggestions);
  }
  return text;
}

std::string missing_file_text(std::string_view name, const std::vector<std::string>& listing) {
  std::string text = fmt::format("there is no shared file '{}'", escape_for_display(name));
  if (listing.empty()) return text + "; no files are shared.";
  std::vector<std::string_view> similar;
  const std::string wanted = collision_key(base_name(name));
  for (const std::string& visible : listing) {
    if (is_valid_utf8(visible) && collision_key(base_name(visible)) == wanted) {
      similar.push_back(visible);
    }
  }
  if (!similar.empty()) return fmt::format("{}; did you mean {}?", text, join_names(similar));
  return fmt::format("{}; there are: {}.", text, join_names({listing.begin(), listing.end()}));
}

// For what a store of the host's threw. Its text is not for models, so that it does not leave in
// the family of refusals whose text they read.
[[noreturn]] void throw_store_failure(std::string_view what, const std::exception& failure) {
  const bool read_by_models = dynamic_cast<const SandboxOutputError*>(&failure) != nullptr;
  if (dynamic_cast<const SandboxError*>(&failure) != nullptr && !read_by_models) throw;
  std::throw_with_nested(
      SandboxFileError(fmt::format("{}: {}", what, replace_invalid_utf8(failure.what())), EIO));
}

std::vector<std::string> sorted_listing(const FileStore& store) {
  std::vector<std::string> listing;
  try {
    listing = store.list();
  } catch (const std::exception& failure) {
    throw_store_failure("the shared files could not be listed", failure);
  }
  std::ranges::sort(listing);
  return listing;
}

// By the rules on names and against the listing, before any file is opened.
void check_file_names(const CodeactWiring& wiring, const CodeactRequest& request) {
  const std::vector<std::string> listing = sorted_listing(*wiring.file_store);
  NameSet names(NameComparison::exact);
  for (const std::string& name : request.files) {
    validate_artifact_name(name);
    refuse_reserved(name, wiring.outputs);
    names.add(name);
    if (!std::ranges::binary_search(listing, name)) {
      throw ModelFacingRefusal(missing_file_text(name, listing));
    }
  }
}

std::string read_one(const FileStore& store, const std::string& name, const TransferLimits& limits,
                     std::uint64_t remaining) {
  std::optional<std::string> content;
  try {
    content = store.read(name, std::min(limits.max_bytes_per_file, remaining));
  } catch (const SandboxTransferCapExceeded&) {
    // Said anew: the store knows neither which of the caps it was, nor whom its text will reach.
    const bool one = limits.max_bytes_per_file <= remaining;
    std::throw_with_nested(SandboxTransferCapExceeded(
        one ? fmt::format("file '{}' is larger than the cap of {} bytes on one file that goes in",
                          escape_for_display(name), limits.max_bytes_per_file)
            : fmt::format("with file '{}' the files that go in, the program among them, are over "
                          "their cap of {} bytes in all",
                          escape_for_display(name), limits.max_total_bytes),
        "share less, or raise the caps on files in"));
  } catch (const std::exception& failure) {
    throw_store_failure(fmt::format("shared file '{}' could not be read", escape_for_display(name)),
                        failure);
  }
  if (!content) {
    throw ModelFacingRefusal(
        fmt::format("the shared file '{}' is not there any more.", escape_for_display(name)));
  }
  return std::move(*content);
}

}  // namespace

void check_timeout(const std::optional<std::chrono::nanoseconds>& timeout) {
  constexpr std::chrono::seconds kLongest(kMaxTimeoutSeconds);
  if (!timeout || (*timeout > std::chrono::nanoseconds(0) && *timeout <= kLongest)) return;
  throw InvalidArgument(fmt::format("a program's timeout of {} s is not above 0 and at most {} s",
                                    std::chrono::duration<double>(*timeout).count(),
                                    kLongest.count()));
}

void check_wiring(const CodeactWiring& wiring, const CodeactRequest& request) {
  check_timeout(request.timeout);
  if (wiring.outputs != CodeactOutputs::none && !wiring.output_sink) {
    throw missing_sink_refusal(wiring.spec.kind);
  }
  if (wiring.spec.outputs_named_at_call_time != (wiring.outputs != CodeactOutputs::none)) {
    throw InvalidArgument(fmt::format("the spec was made for another outputs mode than {}",
                                      to_string(wiring.outputs)),
                          "make it with codeact_sandbox_spec and the same mode");
  }
  const bool has_host_tools = wiring.host_tools && !wiring.host_tools->empty();
  if (has_host_tools != wiring.spec.host_tools.has_value()) {
    throw InvalidArgument(has_host_tools
                              ? "the spec was made without the registry of host tools"
                              : "the spec was made with a registry of host tools that is not here",
                          "make it with codeact_sandbox_spec and the same registry");
  }
  if (!request.outputs.empty() && wiring.outputs != CodeactOutputs::declared) {
    throw InvalidArgument(fmt::format("outputs are named in a request, but the mode is {}",
                                      to_string(wiring.outputs)));
  }
  if (!request.files.empty() && !wiring.file_store) {
    throw InvalidArgument("files are named in a request, but there is no store to take them from");
  }
  if (wiring.file_store && wiring.output_sink && !wiring.unsafe_shared_store) {
    refuse_overlap(*wiring.output_sink, *wiring.file_store);
  }
}

void check_output_names(std::span<const std::string> names, const TransferLimits& limits,
                        CodeactOutputs outputs, const OutputSink& sink) {
  if (names.size() > limits.max_files) {
    throw SandboxTransferCapExceeded(fmt::format("{} outputs are named; at most {} can be saved",
                                                 names.size(), limits.max_files),
                                     "name fewer, or raise the cap on files out");
  }
  NameSet landing(NameComparison::collision_key);
  for (const std::string& name : names) {
    validate_artifact_name(name);
    if (sink.normalization() == NameNormalization::nfc) {
      const std::string composed = normalise_nfc(name);
      if (composed != name) validate_artifact_name(composed);
    }
    refuse_reserved(name, outputs);
    landing.add(name);
  }
}

std::vector<SharedFile> read_shared_files(const CodeactWiring& wiring,
                                          const CodeactRequest& request,
                                          const CallControl& control) {
  const TransferLimits& limits = wiring.spec.files_in;
  if (request.files.size() >= limits.max_files) {
    throw SandboxTransferCapExceeded(
        fmt::format("{} files are named, which with the program makes {}; at most {} can go in",
                    request.files.size(), request.files.size() + 1, limits.max_files),
        "name fewer, or raise the cap on files in");
  }
  TransferTally tally(limits, "files in");
  tally.add("program.py", request.code.size());
  if (request.files.empty()) return {};

  check_file_names(wiring, request);
  std::vector<SharedFile> files;
  for (const std::string& name : request.files) {
    if (control.stop.stop_requested()) {
      throw SandboxCancelled("the call was cancelled while its files were read");
    }
    std::string content = read_one(*wiring.file_store, name, limits, tally.remaining_bytes());
    tally.add(name, content.size());
    files.push_back({name, std::move(content)});
  }
  return files;
}

}  // namespace casemate::codeact
