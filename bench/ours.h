#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/table.h"
#include "casemate/core/backend.h"

namespace casemate::bench {

// What Casemate's rows work with; shared by them, and ended with the last of them.
struct OursOptions {
  std::shared_ptr<SandboxBackend> backend;
  // Where that finds sandboxes (`LinuxBackendOptions::state_dir`).
  std::string state_dir;
  // The program casemate itself, for the rows that time whole processes.
  std::string program;
};

// Casemate's rows. Makes the sandbox in which the warm rows run; throws what that throws.
std::vector<Subject> our_subjects(const OursOptions& options);

}  // namespace casemate::bench
