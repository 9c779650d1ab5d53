#pragma once

// The list of outputs that a program writes. For kinds/codeact/ alone.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/limits.h"
#include "casemate/core/sandbox.h"

namespace casemate::codeact {

struct Manifest {
  bool written = false;
  // As the program spelled them: nothing was checked.
  std::vector<std::string> names;
  // What the list itself took of the budget.
  std::uint64_t bytes = 0;

  // What is left of `limits` for the files themselves.
  TransferLimits budget(TransferLimits limits) const;
};

// Reads `outputs.json` in `work_directory`: `{"outputs":[{"path":"NAME"},...]}`, other keys
// ignored. Throws, all in words that a model may read: of the output family for a list that is no
// regular file, of unknown size, over the smallest of 64 KiB and the caps, or that cannot be read;
// `ModelFacingRefusal` for one that is not of this form.
Manifest read_manifest(GuestFiles& files, std::string_view work_directory,
                       const TransferLimits& limits, const CallControl& control);

}  // namespace casemate::codeact
