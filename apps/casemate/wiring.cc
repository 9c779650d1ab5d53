#include "apps/casemate/wiring.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "apps/casemate/console.h"
#include "apps/casemate/refusal.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {

Log make_log(const ParsedLine& line) {
  if (!line.has("-v")) return {};
  return [](LogLevel level, std::string_view text) {
    say(fmt::format("{}: {}", to_string(level), options_named_here(std::string(text))));
  };
}

images::ImageStoreOptions image_store_options(const Config& config, Log log) {
  images::ImageStoreOptions options;
  if (config.linux_image_dir) options.directory = *config.linux_image_dir;
  // As for CASEMATE_STATE_DIR below.
  if (const char* directory = std::getenv("CASEMATE_IMAGE_DIR")) options.directory = directory;
  if (config.linux_image_keep) options.collection.unused_for = *config.linux_image_keep;
  if (config.linux_image_store_bytes) {
    options.collection.max_bytes = *config.linux_image_store_bytes;
  }
  if (isatty(2) == 1) options.progress = [](std::string_view step) { say(step); };
  options.log = std::move(log);
  return options;
}

LinuxBackendOptions linux_options(const Config& config, Log log) {
  LinuxBackendOptions options;
  if (config.linux_state_dir) options.state_dir = *config.linux_state_dir;
  // For tests, and for two installations that must not see each other's sandboxes.
  if (const char* directory = std::getenv("CASEMATE_STATE_DIR")) options.state_dir = directory;
  options.images = image_store_options(config, log);
  options.log = std::move(log);
  return options;
}

OciBackendOptions oci_options(const Config& config, Log log) {
  OciBackendOptions options;
  if (config.oci_runtime) options.runtime = *config.oci_runtime;
  if (config.oci_state_dir) options.state_dir = *config.oci_state_dir;
  // Each backend has its own: beside the other's.
  if (const char* directory = std::getenv("CASEMATE_STATE_DIR")) {
    options.state_dir = std::string(directory) + "-oci";
  }
  if (const char* runtime = std::getenv("CASEMATE_OCI_RUNTIME")) options.runtime = runtime;
  options.images = image_store_options(config, log);
  options.log = std::move(log);
  return options;
}

std::vector<std::shared_ptr<SandboxBackend>> make_backends(const Config& config, Log log,
                                                           ServerNameCheck server_names) {
  LinuxBackendOptions linux_backend = linux_options(config, log);
  linux_backend.egress.server_names = server_names;
  OciBackendOptions oci_backend = oci_options(config, std::move(log));
  oci_backend.egress.server_names = server_names;
  return {std::make_shared<LinuxBackend>(std::move(linux_backend)),
          std::make_shared<OciBackend>(std::move(oci_backend))};
}

void refuse_operands(const ParsedLine& line) {
  for (const auto* words : {&line.operands, &line.trailing}) {
    if (words->empty()) continue;
    throw InvalidArgument(fmt::format("unexpected '{}'", escape_for_display(words->front())),
                          "this verb takes options only");
  }
}

}  // namespace casemate::app
