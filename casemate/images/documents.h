#pragma once

// The JSON documents of images, as strangers write them: OCI image-spec v1.1 and what `docker save`
// writes. Pure functions of bytes; digests are the caller's to check. All throw
// `SandboxImageInvalid`, whose message names the document and the part.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace casemate::images {

// Largest document that is read.
inline constexpr std::uint64_t kMaxDocumentBytes = 4 * 1024 * 1024;
// Largest number of layers; overlay file systems, which builders use, hold as many.
inline constexpr std::size_t kMaxLayers = 128;

// Where content is: its digest (`sha256:<64 hex>`) and its size.
struct Descriptor {
  std::string media_type;
  std::string digest;
  std::uint64_t size = 0;
  // Of an index's entries.
  std::string name;
  std::string os;
  std::string architecture;
};

// The machine that an image is for, in the words of image documents: `linux`, `amd64`.
struct Platform {
  std::string os;
  std::string architecture;
};
Platform this_platform();

// Picks one entry of an OCI index (`index.json`, or one inside it): the one named `tag`, or without
// a tag the only one, or the one for `platform`. Entries that are no images (attestations) do not
// count.
Descriptor choose_manifest(std::string_view index, std::string_view tag, const Platform& platform);
// Whether a descriptor leads to another index.
bool is_index(const Descriptor& descriptor);

struct Manifest {
  Descriptor config;
  // The lowest first.
  std::vector<Descriptor> layers;
};
Manifest parse_manifest(std::string_view text);

struct ImageConfig {
  Platform platform;
  // Variables by name; a later one wins.
  std::map<std::string, std::string> environment;
  // Digest of each layer's tar, uncompressed; the lowest first.
  std::vector<std::string> diff_ids;
};
// Refuses an image for another machine than `platform`.
ImageConfig parse_config(std::string_view text, const Platform& platform);

// `manifest.json` of a docker archive: names of members.
struct ArchiveManifest {
  std::string config;
  std::vector<std::string> layers;
};
ArchiveManifest parse_archive_manifest(std::string_view text);

}  // namespace casemate::images
