#pragma once

#include <map>
#include <optional>
#include <string>

#include "casemate/core/control.h"
#include "casemate/core/spec.h"
#include "casemate/images/store.h"

namespace casemate::local {

// What a sandbox shall run from.
struct ImageChoice {
  // As the spec spells it.
  std::string name;
  // Kept until the sandbox keeps it itself; absent for `host`.
  std::optional<images::HeldImage> held;
  // The spec's fingerprint, with the image that its reference means now in place of the reference.
  std::string fingerprint;
  // The image's own variables, less those that say where the sandbox's user is at home, its PATH
  // with our programs at the end.
  std::map<std::string, std::string> environment;
};

// `build` is what the sandbox is made with beside the spec. The image that the spec names, imported
// where it has to be. Throws as `ImageStore::hold`, and `InvalidArgument` for a work directory in a
// directory of the image's.
ImageChoice choose_image(const SandboxSpec& spec, images::ImageStore& store,
                         const std::string& build, const CallControl& control);

}  // namespace casemate::local
