#include "apps/casemate/wiring.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "apps/casemate/console.h"
#include "apps/casemate/host_variable.h"
#include "apps/casemate/progress_line.h"
#include "apps/casemate/refusal.h"
#include "apps/casemate/run_option_table.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/microvm/accelerator.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/spec_match.h"

namespace casemate::app {

Log make_log(const ParsedLine& line) {
  if (!line.has("-v")) return {};
  return [](LogLevel level, std::string_view text) {
    say(fmt::format("{}: {}", to_string(level), options_named_here(std::string(text))));
  };
}

namespace {

// Absent: not set, or to nothing. A variable outlives a change of directory, and what keeps
// sandboxes has a directory of its own: a relative path would be another place for each.
std::optional<std::string> directory_of_environment(const char* name) {
  const char* directory = std::getenv(name);
  if (directory == nullptr || *directory == '\0') return std::nullopt;
  if (*directory != '/') {
    throw ConfigInvalid(
        fmt::format("{} is '{}', a relative path", name, escape_for_display(directory)),
        "give an absolute path there");
  }
  std::string path = std::filesystem::path(directory).lexically_normal();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

images::ImageStoreOptions image_store_options(const Config& config, Log log) {
  images::ImageStoreOptions options;
  if (config.linux_image_dir) options.directory = *config.linux_image_dir;
  if (const auto directory = directory_of_environment("CASEMATE_IMAGE_DIR")) {
    options.directory = *directory;
  }
  if (config.linux_image_keep) options.collection.unused_for = *config.linux_image_keep;
  if (config.linux_image_store_bytes) {
    options.collection.max_bytes = *config.linux_image_store_bytes;
  }
  if (isatty(2) == 1) {
    options.progress = [line = std::make_shared<ProgressLine>(screen_of_standard_error())](
                           const images::Progress& progress) { line->show(progress); };
  }
  options.log = std::move(log);
  return options;
}

namespace {

// For tests, and for two installations that must not see each other's sandboxes. Without a slash at
// the end, behind which another backend's name would be a directory in this one.
std::optional<std::string> state_directory_of_environment() {
  return directory_of_environment("CASEMATE_STATE_DIR");
}

}  // namespace

LinuxBackendOptions linux_options(const Config& config, Log log) {
  LinuxBackendOptions options;
  if (config.linux_state_dir) options.state_dir = *config.linux_state_dir;
  if (const auto directory = state_directory_of_environment()) options.state_dir = *directory;
  options.images = image_store_options(config, log);
  options.log = std::move(log);
  return options;
}

OciBackendOptions oci_options(const Config& config, Log log) {
  OciBackendOptions options;
  if (config.oci_runtime) options.runtime = *config.oci_runtime;
  if (config.oci_state_dir) options.state_dir = *config.oci_state_dir;
  // Each backend has its own: beside the other's.
  if (const auto directory = state_directory_of_environment()) {
    options.state_dir = *directory + "-oci";
  }
  if (const char* runtime = std::getenv("CASEMATE_OCI_RUNTIME")) options.runtime = runtime;
  options.images = image_store_options(config, log);
  options.log = std::move(log);
  return options;
}

namespace {

std::string variable(const char* name) { return host_variable(name).value_or(""); }

// Where Docker's own client has them. What is not there is refused by its name when it is used.
std::string docker_certificates() {
  for (const char* name : {"DOCKER_CERT_PATH", "DOCKER_CONFIG"}) {
    if (std::string directory = variable(name); !directory.empty()) return directory;
  }
  return variable("HOME") + "/.docker";
}

}  // namespace

DockerBackendOptions docker_options(const Config& config, Log log) {
  DockerBackendOptions options;
  const auto take = [&](std::string_view key, std::string& to) {
    const auto found = config.docker.find(key);
    if (found != config.docker.end()) to = found->second;
    return found != config.docker.end();
  };
  take("tls_dir", options.tls_directory);
  const char* host = std::getenv("DOCKER_HOST");
  if (!take("host", options.host) && host != nullptr) {
    // As Docker's own client does, but that an engine's certificate is always verified.
    options.host = host;
    const bool tls = !variable("DOCKER_TLS_VERIFY").empty() || !variable("DOCKER_TLS").empty();
    if (tls && options.tls_directory.empty()) options.tls_directory = docker_certificates();
  }
  take("image", options.image);
  take("platform", options.platform);
  take("runtime", options.runtime);
  std::string pull;
  if (take("pull", pull) && pull == "never") options.pull = DockerPull::never;
  take("state_dir", options.state_dir);
  if (const auto directory = state_directory_of_environment()) options.state_dir = *directory;
  if (isatty(2) == 1) options.progress = [](std::string_view step) { say(step); };
  options.log = std::move(log);
  return options;
}

namespace {

std::optional<microvm::Accelerator> accelerator_of(std::string_view name) {
  if (name == "auto") return std::nullopt;
  if (name == "kvm") return microvm::Accelerator::kvm;
  if (name == "tcg") return microvm::Accelerator::tcg;
  throw InvalidArgument(fmt::format("there is no accelerator '{}'", escape_for_display(name)),
                        fmt::format("give one of: {}", fmt::join(kAccelerators, ", ")));
}

}  // namespace

MicrovmBackendOptions microvm_options(const Config& config, Log log) {
  MicrovmBackendOptions options;
  if (config.microvm_state_dir) options.state_dir = *config.microvm_state_dir;
  if (const auto directory = state_directory_of_environment()) {
    options.state_dir = *directory + "-microvm";
  }
  if (config.microvm_kernel_root) options.kernel_root = *config.microvm_kernel_root;
  if (config.microvm_qemu) options.qemu = *config.microvm_qemu;
  if (config.microvm_accelerator) options.accelerator = accelerator_of(*config.microvm_accelerator);
  if (config.microvm_machine == "q35") options.machine = microvm::MachineType::q35;
  if (config.microvm_saves_machines) options.saves_machines = *config.microvm_saves_machines;
  // For tests: whether there is a processor's virtualisation must not decide what they see.
  if (const char* accelerator = std::getenv("CASEMATE_MICROVM_ACCELERATOR")) {
    options.accelerator = accelerator_of(accelerator);
  }
  if (const auto root = directory_of_environment("CASEMATE_MICROVM_KERNEL")) {
    options.kernel_root = *root;
  }
  options.images = image_store_options(config, log);
  options.log = std::move(log);
  return options;
}

std::vector<std::shared_ptr<SandboxBackend>> make_backends(const Config& config, Log log,
                                                           ServerNameCheck server_names,
                                                           std::string_view only) {
  const bool all = std::ranges::find(kBackends, only) == kBackends.end();
  std::vector<std::shared_ptr<SandboxBackend>> backends;
  if (all || only == kLinuxBackendName) {
    LinuxBackendOptions options = linux_options(config, log);
    options.egress.server_names = server_names;
    backends.push_back(std::make_shared<LinuxBackend>(std::move(options)));
  }
  if (all || only == kOciBackendName) {
    OciBackendOptions options = oci_options(config, log);
    options.egress.server_names = server_names;
    backends.push_back(std::make_shared<OciBackend>(std::move(options)));
  }
  if (all || only == kDockerBackendName) {
    backends.push_back(std::make_shared<DockerBackend>(docker_options(config, log)));
  }
  if (all || only == kMicrovmBackendName) {
    MicrovmBackendOptions options = microvm_options(config, log);
    options.egress.server_names = server_names;
    backends.push_back(std::make_shared<MicrovmBackend>(std::move(options)));
  }
  return backends;
}

void refuse_floor_of_machines(const RunOptions& options,
                              const std::vector<std::shared_ptr<SandboxBackend>>& backends) {
  const Isolation floor = options.min_isolation;
  if (floor < Isolation::microvm || options.backend.value_or("microvm") != kMicrovmBackendName) {
    return;
  }
  for (const auto& backend : backends) {
    if (!match_host_floor(floor, backend->declarations())) return;
  }
  const std::string_view whole = floor > Isolation::microvm ? ", machine = \"q35\"" : "";
  const microvm::KvmState kvm = microvm::judge(microvm::look_at_kvm(), "");
  const std::string_view why =
      kvm.usable ? "the settings in [backends.microvm] or the environment ask for another machine"
                 : std::string_view(kvm.reason);
  throw SandboxBackendNotPermitted(
      fmt::format(
          "no backend here stands on this host's floor '{}': virtual machines (backend "
          "'microvm'{}) would with a processor's virtualisation, and {}; emulated ones are a "
          "'hardened_container'",
          to_string(floor), whole, why),
      fmt::format("{}{}{}or lower --min-isolation", kvm.hint, kvm.hint.empty() ? "" : "; ",
                  whole.empty() ? "" : "set machine = \"q35\" in [backends.microvm] as well; "));
}

void settle_image(const ParsedLine& line, const Config& config, RunOptions& options) {
  if (line.has("--image") || options.backend != kDockerBackendName) return;
  const auto image = config.docker.find("image");
  if (image == config.docker.end()) {
    throw InvalidArgument("--backend docker has no image of its own, and none was named",
                          "give --image REF, for example python:3-slim, or set image in "
                          "[backends.docker] of casemate.toml");
  }
  options.image = image->second;
}

void refuse_operands(const ParsedLine& line) {
  for (const auto* words : {&line.operands, &line.trailing}) {
    if (words->empty()) continue;
    throw InvalidArgument(fmt::format("unexpected '{}'", escape_for_display(words->front())),
                          "this verb takes options only");
  }
}

}  // namespace casemate::app
