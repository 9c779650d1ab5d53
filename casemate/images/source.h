#pragma once

// Where an image comes from: an OCI layout or a docker archive on this machine.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "casemate/core/control.h"
#include "casemate/images/documents.h"
#include "casemate/images/progress.h"
#include "casemate/images/tar_stream.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {

// One layer's file and what it has to be.
struct SourceLayer {
  sys::UniqueFd file;
  // Absent where the source only states what is in it.
  std::optional<Descriptor> blob;
  // Digest of the tar, uncompressed.
  std::string diff_id;
};

// An image whose documents were read and whose digests, as far as read, are right.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  const ImageConfig& config() const { return config_; }
  // Digest of the config: what an image is called by.
  const std::string& id() const { return id_; }

  // Opens what `open_layer` needs; `directory` is an empty one that may be filled and that the
  // caller removes. Throws as `TarStream` does.
  virtual void stage(int /*directory*/, const TarBounds& /*bounds*/,
                     const ProgressSink& /*progress*/, const CallControl& /*control*/) {}
  // The layer of that number, 0 being the lowest. Throws `SandboxImageInvalid`.
  virtual SourceLayer open_layer(std::size_t number) = 0;

 protected:
  ImageConfig config_;
  std::string id_;
};

// Reads the documents of an image. `path` is the operator's own: links are followed, and blobs are
// held against their digests. Throw `SandboxImageInvalid` (also where there is no such file, naming
// it), `SandboxCancelled`, `SandboxTimeout`.
std::unique_ptr<ImageSource> open_oci_layout(const std::string& path, const std::string& tag);
std::unique_ptr<ImageSource> open_docker_archive(const std::string& path, const TarBounds& bounds,
                                                 const ProgressSink& progress,
                                                 const CallControl& control);

}  // namespace casemate::images
