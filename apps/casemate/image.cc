// `casemate image`: the local image store.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/refusal.h"
#include "apps/casemate/stop_requests.h"
#include "apps/casemate/values.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/store.h"

namespace casemate::app {

namespace {

namespace json = boost::json;
using images::ImageStore;
using images::StoredImage;

constexpr std::array<std::string_view, 3> kActions = {"import", "ls", "rm"};

constexpr std::array<std::string_view, 2> kImported = {"oci:", "docker-archive:"};

constexpr auto kOptions = std::to_array<OptionSpec>({
    {"--unused", "", Repeat::refused, "off", "with rm: every image that no sandbox uses",
     "image rm --unused"},
    {"--json", "", Repeat::refused, "off",
     "one array of records on standard output; with import and rm those that it was about",
     "image ls --json"},
    kConfigOption,
    {"-v", "", Repeat::refused, "quiet", "log to standard error", "-v"},
});

json::object record(const StoredImage& image) {
  json::array references;
  for (const std::string& reference : image.references) {
    references.emplace_back(json::string(replace_invalid_utf8(reference)));
  }
  return {{"id", image.id},
          {"references", std::move(references)},
          {"architecture", json::string(image.architecture)},
          {"layers", image.layers},
          {"bytes", image.bytes},
          {"files", image.files},
          {"passed_over", image.passed_over},
          {"imported", image.imported},
          {"in_use", image.in_use}};
}

std::string json_text(const std::vector<StoredImage>& found) {
  json::array records;
  for (const StoredImage& image : found) records.push_back(record(image));
  return serialise_json(records) + '\n';
}

std::string mebibytes(std::uint64_t bytes) {
  constexpr std::uint64_t kMi = std::uint64_t{1} << 20U;
  return fmt::format("{}.{}M", bytes / kMi, bytes % kMi * 10 / kMi);
}

std::string table(const std::vector<StoredImage>& found) {
  std::string text =
      fmt::format("{:<19}  {:>10}  {:>8}  {:<6}  REFERENCES\n", "ID", "SIZE", "FILES", "USED");
  for (const StoredImage& image : found) {
    std::string references;
    for (const std::string& reference : image.references) {
      references += (references.empty() ? "" : ", ") + escape_for_display(reference);
    }
    // As short as `image rm` takes it.
    text += fmt::format("{:<19}  {:>10}  {:>8}  {:<6}  {}\n", image.id.substr(0, 19),
                        mebibytes(image.bytes), image.files, image.in_use ? "yes" : "no",
                        references.empty() ? "-" : references);
  }
  return text;
}

struct ImageRequest {
  std::string action;
  std::vector<std::string> names;
  bool unused = false;
};

ImageRequest read_image_request(const ParsedLine& line) {
  ImageRequest request;
  std::vector<std::string> words = line.operands;
  words.insert(words.end(), line.trailing.begin(), line.trailing.end());
  if (words.empty()) {
    throw InvalidArgument("nothing to do is named",
                          "give import REF, ls, rm NAME... or rm --unused");
  }
  request.action = one_of("image", words.front(), kActions);
  request.names.assign(words.begin() + 1, words.end());
  request.unused = line.has("--unused");
  if (request.unused && (request.action != "rm" || !request.names.empty())) {
    throw InvalidArgument("--unused stands alone with rm", "give `image rm --unused`");
  }
  if (request.action == "ls" && !request.names.empty()) {
    throw InvalidArgument(
        fmt::format("unexpected '{}' after ls", escape_for_display(request.names.front())),
        "`image ls` lists all");
  }
  if (request.action == "import" && request.names.size() != 1) {
    throw InvalidArgument(
        request.names.empty() ? "import needs a reference" : "import takes one reference",
        "give oci:PATH[:TAG], docker-archive:PATH or a registry reference");
  }
  if (request.action == "rm" && request.names.empty() && !request.unused) {
    throw InvalidArgument("nothing to remove is named",
                          "name ids or references (`casemate image ls` lists them), or --unused");
  }
  return request;
}

int import(const ImageRequest& request, ImageStore& store, bool as_json) {
  const images::ImageReference reference = images::parse_image_reference(request.names.front());
  // Before any other thread.
  const StopRequests stop;
  try {
    const StoredImage image = store.import(reference, {.deadline = {}, .stop = stop.token()});
    write_all(1, as_json ? json_text({image}) : image.id + '\n');
    return 0;
  } catch (const SandboxCancelled& cancelled) {
    say_error(cancelled.code(), cancelled.message(), cancelled.hint());
    return stop.exit_status().value_or(kExitRefused);
  }
}

void write_removed(const std::vector<StoredImage>& removed, bool as_json) {
  write_all(1, as_json ? json_text(removed) : fmt::format("removed {}\n", removed.size()));
}

// With the code and the hint of the first.
Reworded together(const std::vector<Reworded>& failures) {
  std::string messages;
  for (const Reworded& failure : failures) {
    messages += (messages.empty() ? "" : "; ") + failure.message();
  }
  return {std::string(failures.front().code()), messages, failures.front().hint()};
}

int remove_images(const ImageRequest& request, ImageStore& store, bool as_json) {
  std::vector<StoredImage> removed;
  if (request.unused) {
    removed = store.remove_unused();
  } else {
    // Each that can go goes, and all that cannot are told.
    std::vector<Reworded> failures;
    for (const std::string& name : request.names) {
      try {
        removed.push_back(store.remove(name));
      } catch (const SandboxError& failure) {
        failures.push_back(in_words_of_the_command_line(failure));
      }
    }
    if (!failures.empty()) {
      const Reworded all = together(failures);
      if (removed.empty()) throw all;
      write_removed(removed, as_json);
      say_error(all.code(), all.message(), all.hint());
      return kExitRefused;
    }
  }
  write_removed(removed, as_json);
  return 0;
}

}  // namespace

constexpr VerbSpec kImageVerb = {
    .name = "image",
    .synopsis = "image [OPTIONS] import REF | ls | rm NAME... | rm --unused",
    .summary = "the local image store: import, list and remove images",
    .notes =
        "REF is oci:PATH[:TAG], docker-archive:PATH or a registry reference (fetched by skopeo). "
        "import\n"
        "prints the image's id; `casemate run --image` takes it, and imports by itself what is not "
        "there.\n"
        "A NAME is an id, its first 12 digits or more, or a reference as `image ls` shows it.\n"
        "\n"
        "For example: casemate image import docker-archive:python.tar\n"
        "             casemate image import docker.io/library/python:3.13-slim\n"
        "\n"
        "An image that a sandbox uses is not removed (SandboxBusy): end the sandbox first. Of "
        "several\n"
        "names each that can go goes; then standard output says which, and standard error the "
        "others.\n"
        "\n"
        "CASEMATE_IMAGE_DIR in the environment names the store's directory (default: "
        "/var/lib/casemate\n"
        "for root, else $XDG_DATA_HOME/casemate or ~/.local/share/casemate).\n"
        "\n"
        "Exit status: 0; 130, 143 or 129 when import was stopped by SIGINT, SIGTERM or SIGHUP, "
        "which\n"
        "leaves nothing; 125 when Casemate refused.",
    .options = kOptions,
    .operands = ValueForm::path,
    .offered_operands = kActions,
    .continued_operand = "import",
    .offered_later = kImported,
};

int image(const ParsedLine& line, const Config& config) {
  ImageRequest request;
  read_line(line, [&](const ParsedLine& given) { request = read_image_request(given); });
  const bool as_json = line.has("--json");
  ImageStore store(image_store_options(config, make_log(line)));
  if (request.action == "import") return import(request, store, as_json);
  if (request.action == "rm") return remove_images(request, store, as_json);
  const std::vector<StoredImage> found = store.list();
  write_all(1, as_json ? json_text(found) : table(found));
  return 0;
}

}  // namespace casemate::app
