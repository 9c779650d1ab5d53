#pragma once

// What `--image` and `SandboxSpec::image` may say.

#include <cstddef>
#include <string>
#include <string_view>

#include "casemate/core/vocabulary.h"

namespace casemate::images {

// Of an id, the digits that `image ls` shows, and the fewest that name one.
inline constexpr std::size_t kMinIdDigits = 12;

// A reference that fits its form; what it names may still not exist.
struct ImageReference {
  ImageForm form = ImageForm::host;
  // One spelling for everything that names the same: `python` is
  // `docker.io/library/python:latest`. A path is kept as it was given.
  std::string text;
  // dir, oci, docker_archive.
  std::string path;
  // oci: empty where none was given. registry: empty where a digest was given.
  std::string tag;
  // registry: host and path, `docker.io/library/python`.
  std::string repository;
  // registry: `sha256:<64 hex>`, or empty.
  std::string digest;
  // An image of the local store by its id, `sha256:<64 hex>`, or by the beginning of one, of 12
  // digits or more; every other part is empty then and the form is `registry`.
  std::string id;

  friend bool operator==(const ImageReference&, const ImageReference&) = default;
};

// Reads `host`, `dir:PATH`, `oci:PATH[:TAG]`, `docker-archive:PATH`, `sha256:<12 to 64 hex>` (an
// image of the local store, never of a registry) or a registry reference,
// `[HOST[:PORT]/]PATH[:TAG][@sha256:<64 hex>]`; of a tag and a digest the digest counts. Throws
// `InvalidArgument` that names the part which is refused.
ImageReference parse_image_reference(std::string_view text);

// Whether `text` is `sha256:` and 64 lower-case hex digits, the only kind of digest accepted here.
bool is_digest(std::string_view text);

}  // namespace casemate::images
