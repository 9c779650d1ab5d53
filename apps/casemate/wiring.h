#pragma once

#include <memory>
#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/option_parser.h"
#include "casemate/backends/linux/linux_backend.h"
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
// The same of the oci backend.
OciBackendOptions oci_options(const Config& config, Log log);

// Every backend of this build, in the order in which they are preferred: cheapest first.
// `server_names` is what TLS clients of programs are held to.
std::vector<std::shared_ptr<SandboxBackend>> make_backends(
    const Config& config, Log log, ServerNameCheck server_names = ServerNameCheck::yes);

// Throws `InvalidArgument` when a verb that takes no words was given some.
void refuse_operands(const ParsedLine& line);

}  // namespace casemate::app
