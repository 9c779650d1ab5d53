// The JSON documents of images and the references to images: what is read leads only to content
// that is named by a digest, within bounds.

#include <algorithm>
#include <string>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/documents.h"
#include "casemate/images/reference.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using namespace casemate::images;

void check(const Descriptor& descriptor) {
  require(is_digest(descriptor.digest), "content is named by its digest");
}

void check(const ImageConfig& config) {
  require(config.diff_ids.size() <= kMaxLayers, "there are no more layers than may be");
  require(std::ranges::all_of(config.diff_ids, is_digest), "a layer is named by its digest");
  for (const auto& [name, value] : config.environment) {
    require(!name.empty() && name.find('=') == std::string::npos, "a variable has a name");
    require(name.find('\0') == std::string::npos && value.find('\0') == std::string::npos,
            "no variable holds a NUL");
  }
}

void read_document(unsigned kind, std::string_view text) {
  switch (kind % 4) {
    case 0:
      check(choose_manifest(text, "", {"linux", "amd64"}));
      break;
    case 1: {
      const Manifest manifest = parse_manifest(text);
      check(manifest.config);
      require(manifest.layers.size() <= kMaxLayers, "there are no more layers than may be");
      for (const Descriptor& layer : manifest.layers) check(layer);
      break;
    }
    case 2:
      check(parse_config(text, {"linux", "amd64"}));
      break;
    default: {
      const ArchiveManifest manifest = parse_archive_manifest(text);
      require(manifest.layers.size() <= kMaxLayers, "there are no more layers than may be");
      require(!manifest.config.empty(), "an archive names its config");
    }
  }
}

void read_reference(std::string_view text) {
  const ImageReference reference = parse_image_reference(text);
  require(parse_image_reference(reference.text) == reference, "a reference has one spelling");
  require(reference.digest.empty() || is_digest(reference.digest), "a digest is one");
  require(reference.repository.empty() == (reference.form != ImageForm::registry) ||
              !reference.id.empty(),
          "only a registry's image has a repository");
  require(reference.text.find('\0') == std::string::npos, "no reference holds a NUL");
  require(!reference.repository.starts_with('-') && !reference.tag.starts_with('-'),
          "no part reads as an option");
}

}  // namespace

void fuzz_image_documents(std::string_view bytes) {
  Input input(bytes);
  const unsigned kind = input.byte();
  try {
    if (kind % 5 == 4) {
      read_reference(input.rest());
    } else {
      read_document(kind % 5, input.rest());
    }
  } catch (const SandboxImageInvalid& refusal) {
    require(is_valid_utf8(refusal.message()) && refusal.message().size() < 4096,
            "a refusal is text, and bounded");
  } catch (const InvalidArgument& refusal) {
    require(is_valid_utf8(refusal.message()) && refusal.message().size() < 4096,
            "a refusal is text, and bounded");
  }
}

}  // namespace casemate::fuzz
