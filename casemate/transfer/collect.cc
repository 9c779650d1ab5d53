#include "casemate/transfer/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/limits.h"
#include "casemate/transfer/artifact_name.h"

namespace casemate {
namespace {

// One declared output on its way.
struct Collected {
  const DeclaredOutput* output = nullptr;
  // Where it lands; for a consumed output its path.
  std::string name;
  std::uint64_t stat_bytes = 0;
};

bool lands(const DeclaredOutput& output) { return output.disposition == OutputDisposition::land; }

std::string shown(const Collected& item) { return escape_for_display(item.name); }

// Phase 2. The guest has not been asked anything.
std::vector<Collected> check_names(const std::vector<DeclaredOutput>& declared,
                                   NameNormalization normalization) {
  std::vector<Collected> items;
  NameSet landing_names(NameComparison::collision_key);
  for (const DeclaredOutput& output : declared) {
    validate_artifact_name(output.path);
    Collected item{&output, output.path};
    if (lands(output)) {
      item.name = output.name.value_or(output.path);
      // Only what is well-formed can be normalised; the validator says what is wrong with the rest.
      if (normalization == NameNormalization::nfc && is_valid_utf8(item.name)) {
        item.name = normalise_nfc(item.name);
      }
      if (item.name != output.path) {
        validate_artifact_name(item.name);
      }
      landing_names.add(item.name);
    }
    items.push_back(std::move(item));
  }
  return items;
}

// What of a provider's failure may be said to a model: the kind, and for a guest's errno its
// standard text. The rest is in the nested exception, for the log.
template <typename Ask>
auto translated(const Collected& item, std::string_view verb, Ask ask) {
  const auto unreachable = [&](std::string_view why) {
    return SandboxOutputUnreachable(
        fmt::format("output \"{}\" could not be {}: {}", shown(item), verb, why));
  };
  try {
    return ask();
  } catch (const SandboxPathRefused&) {
    std::throw_with_nested(SandboxOutputNotConfined(
        fmt::format("output \"{}\" lies outside the program's directory or behind a link",
                    shown(item)),
        "write the file itself into the program's current directory"));
  } catch (const SandboxFileError& error) {
    std::throw_with_nested(unreachable(std::generic_category().message(error.error_number())));
  } catch (const SandboxTimeout&) {
    std::throw_with_nested(unreachable("the sandbox did not answer in time"));
  } catch (const SandboxUnavailable&) {
    std::throw_with_nested(unreachable("the sandbox is not available"));
  }
}

std::string_view described(EntryKind kind) {
  switch (kind) {
    case EntryKind::file:
      return "a regular file";
    case EntryKind::directory:
      return "a directory";
    case EntryKind::symlink:
      return "a link";
    case EntryKind::other:
      break;
  }
  return "a FIFO, a device, a socket or a file with several names";
}

class Collection {
 public:
  Collection(GuestFiles& files, const SandboxSpec& spec, const CollectOptions& options)
      : files_(files),
        spec_(spec),
        options_(options),
        directory_(options.working_directory.empty() ? std::string_view(spec.work_dir)
                                                     : options.working_directory) {}

  // Phases 3 and 4. Returns what lands.
  std::vector<Collected> stat_all(std::vector<Collected> items, std::vector<std::string>& missing) {
    TransferTally tally(spec_.files_out, "files out");
    std::vector<Collected> landing;
    for (Collected& item : items) {
      const auto entry = translated(item, "looked at", [&] {
        return files_.stat_file(item.output->path, directory_, options_.control);
      });
      if (!entry) {
        if (item.output->required) {
          throw SandboxOutputMissing(
              fmt::format("output \"{}\" was not written by the program", shown(item)),
              "write it into the program's current directory under exactly this name");
        }
        missing.push_back(std::move(item.name));
        continue;
      }
      if (entry->kind != EntryKind::file) {
        throw SandboxOutputNotRegular(fmt::format("output \"{}\" is not a regular file but {}",
                                                  shown(item), described(entry->kind)),
                                      "write a regular file");
      }
      if (!entry->size_bytes) {
        throw SandboxOutputSizeUnknown(
            fmt::format("the size of output \"{}\" is not known, so it is not read", shown(item)));
      }
      tally.add(item.name, *entry->size_bytes);
      item.stat_bytes = *entry->size_bytes;
      if (lands(*item.output)) {
        landing.push_back(std::move(item));
      }
    }
    return landing;
  }

  // Phase 6. The bytes that arrive are counted afresh: a stat is only what was true a moment ago.
  std::vector<Artifact> read_all(const std::vector<Collected>& landing) {
    TransferTally tally(spec_.files_out, "files out");
    std::vector<Artifact> artifacts;
    for (const Collected& item : landing) {
      const std::uint64_t max_bytes = std::min(item.stat_bytes, tally.remaining_bytes());
      std::string content = read_one(item, max_bytes);
      tally.add(item.name, content.size());
      artifacts.push_back({item.name, std::move(content), spec_.kind, item.output->media_type});
    }
    return artifacts;
  }

 private:
  std::string read_one(const Collected& item, std::uint64_t max_bytes) {
    const auto grew = [&] {
      return SandboxTransferCapExceeded(
          fmt::format("output \"{}\" has more than the {} bytes it had when it was looked at",
                      shown(item), max_bytes),
          "finish writing before the program ends");
    };
    std::string content;
    try {
      content = translated(item, "read", [&] {
        return files_.read_file(item.output->path, directory_, max_bytes, options_.control);
      });
    } catch (const SandboxTransferCapExceeded&) {
      std::throw_with_nested(grew());
    }
    if (content.size() > max_bytes) {  // a provider that reads first and asks later
      throw grew();
    }
    return content;
  }

  GuestFiles& files_;
  const SandboxSpec& spec_;
  const CollectOptions& options_;
  std::string_view directory_;
};

}  // namespace

CollectReport collect_outputs(GuestFiles& files, const SandboxSpec& spec,
                              const CollectOptions& options) {
  // Phase 0.
  if (!options.outputs.empty() && !spec.outputs_named_at_call_time) {
    throw InvalidArgument(
        fmt::format("outputs are named by the call, but the spec of kind \"{}\" does not allow it",
                    escape_for_display(spec.kind)),
        "set outputs_named_at_call_time, or declare the outputs in the spec");
  }
  // Phase 1.
  std::vector<DeclaredOutput> declared = spec.declared_outputs;
  declared.insert(declared.end(), options.outputs.begin(), options.outputs.end());
  if (options.sink == nullptr && std::ranges::any_of(declared, lands)) {
    throw missing_sink_refusal(spec.kind);
  }
  // Phase 2. Without a sink nothing lands, and no name is rewritten.
  std::vector<Collected> items = check_names(
      declared, options.sink != nullptr ? options.sink->normalization() : NameNormalization::none);

  CollectReport report;
  Collection collection(files, spec, options);
  const std::vector<Collected> landing = collection.stat_all(std::move(items), report.missing);
  // Phase 5.
  if (landing.empty()) {
    return report;
  }
  const std::vector<Artifact> artifacts = collection.read_all(landing);
  // Phase 7.
  report.landed = options.sink->deliver_all(artifacts);
  if (report.landed.size() != artifacts.size()) {
    throw InvalidArgument(fmt::format("the output sink answered {} records for {} artifacts",
                                      report.landed.size(), artifacts.size()),
                          "return one record an artifact from deliver_all");
  }
  for (std::size_t i = 0; i < artifacts.size(); ++i) {
    report.landed[i].bytes = artifacts[i].content.size();
  }
  return report;
}

std::vector<DeclaredOutput> landing_outputs(const SandboxSpec& spec) {
  std::vector<DeclaredOutput> landing;
  std::ranges::copy_if(spec.declared_outputs, std::back_inserter(landing), lands);
  return landing;
}

bool spec_lands_artifacts(const SandboxSpec& spec) {
  return spec.outputs_named_at_call_time || std::ranges::any_of(spec.declared_outputs, lands);
}

SandboxOutputSinkRequired missing_sink_refusal(std::string_view kind) {
  return SandboxOutputSinkRequired(
      fmt::format("kind \"{}\" lands outputs, and no output sink was given",
                  escape_for_display(kind)),
      "give it a sink, for example make_file_system_sink(directory)");
}

}  // namespace casemate
