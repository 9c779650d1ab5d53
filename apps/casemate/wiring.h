#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/option_parser.h"
#include "apps/casemate/run_options.h"
#include "casemate/backends/docker/docker_backend.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/microvm/microvm_backend.h"
#include "casemate/backends/oci/oci_backend.h"
#include "casemate/base/log.h"
#include "casemate/core/backend.h"
#include "casemate/egress/gateway.h"
#include "casemate/images/store.h"

namespace casemate::app {

// To standard error with -v, else nowhere.
Log make_log(const ParsedLine& line);

// Where images are kept; what is done with them is told on standard error where that is a terminal.
images::ImageStoreOptions image_store_options(const Config& config, Log log);

// How the configuration and the environment want the linux backend.
LinuxBackendOptions linux_options(const Config& config, Log log);
// The same of the microvm backend. Throws `InvalidArgument` for an accelerator in the environment
// that there is none of.
MicrovmBackendOptions microvm_options(const Config& config, Log log);

// The same of the oci backend.
OciBackendOptions oci_options(const Config& config, Log log);

// How the configuration and the environment (DOCKER_HOST, and with DOCKER_TLS_VERIFY or DOCKER_TLS
// the certificates in DOCKER_CERT_PATH, DOCKER_CONFIG or ~/.docker) want the docker backend.
DockerBackendOptions docker_options(const Config& config, Log log);

// Every backend of this build, in the order in which they are preferred: cheapest first.
// `server_names` is what TLS clients of programs are held to. `only` is the name of the one that is
// wanted: the others are not made then, so that no engine is asked of which nobody speaks. A name
// that none has makes all, for the refusal that lists them.
std::vector<std::shared_ptr<SandboxBackend>> make_backends(
    const Config& config, Log log, ServerNameCheck server_names = ServerNameCheck::yes,
    std::string_view only = {});

// Throws `SandboxBackendNotPermitted` where the floor is that of virtual machines and none of these
// stands on it, with what machines lack here and what would help. Says nothing of another backend
// that was chosen.
void refuse_floor_of_machines(const RunOptions& options,
                              const std::vector<std::shared_ptr<SandboxBackend>>& backends);

// The image for a line that names none: each backend's own. Throws `InvalidArgument` where the
// docker backend was chosen and has none.
void settle_image(const ParsedLine& line, const Config& config, RunOptions& options);

// Throws `InvalidArgument` when a verb that takes no words was given some.
void refuse_operands(const ParsedLine& line);

}  // namespace casemate::app
