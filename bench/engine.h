#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/table.h"
#include "casemate/core/backend.h"

namespace casemate::bench {

// Casemate's rows over a container engine, beside those of the engine's own client (peers.h): to be
// told of the same engine, that is by DOCKER_HOST. `image` needs /bin/true and python3; empty: none
// was named. Rows that say why where the engine or the image is not to be had. The warm rows'
// sandbox is made by the first sample that needs it and ends with the last subject.
std::vector<Subject> engine_subjects(std::shared_ptr<SandboxBackend> backend, std::string image);

// Casemate's rows over virtual machines: each cold one restored from a saved machine, which the
// sample that is not counted makes. `image` as above; rows that say why where machines or the image
// are not to be had. `emulated` is in the rows' name: such times are no hypervisor's.
std::vector<Subject> machine_subjects(std::shared_ptr<SandboxBackend> backend, std::string image,
                                      bool emulated);

}  // namespace casemate::bench
