#pragma once

#include <cstdint>
#include <string>

#include "casemate/core/control.h"
#include "casemate/images/progress.h"
#include "casemate/images/source.h"
#include "casemate/images/store_directory.h"
#include "casemate/images/tar_stream.h"

namespace casemate::images {

// Makes an image of the store out of what `source` has, of all layers together within `bounds`, and
// gives it the name `images/NAME`, whose lock the caller holds. Nothing is left of one that fails.
// `imported` is the time that its record says, in seconds since 1970. Throws `SandboxImageInvalid`,
// `SandboxCancelled`, `SandboxTimeout`, `std::system_error`.
void unpack_image(ImageSource& source, const StoreDirectory& store, const std::string& name,
                  const TarBounds& bounds, std::int64_t imported, const ProgressSink& progress,
                  const CallControl& control);

}  // namespace casemate::images
