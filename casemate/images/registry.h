#pragma once

#include <string>

#include "casemate/core/control.h"
#include "casemate/images/progress.h"
#include "casemate/images/reference.h"

namespace casemate::images {

// The name that a downloaded image has in its layout.
inline constexpr char kDownloadTag[] = "image";

// Has `skopeo` (a name looked up on PATH, or a path) copy an image from its registry into an OCI
// layout called `name` in `directory`, under `kDownloadTag`. It is run with this process's
// environment, so that its proxies and its `skopeo login` count, in a process group that ends with
// a cancelled call. It checks the digest of a reference that has one; how much it downloads is not
// bounded here, only what is unpacked of it.
//
// Throws `SandboxImageNotSupported` where there is no skopeo, `SandboxUnavailable` with what it
// said when it failed, `SandboxCancelled`, `SandboxTimeout`, `std::system_error`. `progress` is
// told how many bytes it has written.
void fetch_from_registry(const std::string& skopeo, const ImageReference& reference, int directory,
                         const std::string& name, const ProgressSink& progress,
                         const CallControl& control);

}  // namespace casemate::images
