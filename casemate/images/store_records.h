#pragma once

// The small files of an image store (store.h). Written whole or not at all. All throw
// `std::system_error`; what is no file of ours reads as absent.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/images/store.h"

namespace casemate::images {

// `image.json` in an image's directory; without `references` and `in_use`, which are found out.
void write_image_record(int directory, const StoredImage& image);
std::optional<StoredImage> read_image_record(int directory);

// In the directory of references.
void write_reference(int references, const std::string& text, const std::string& id);
std::optional<std::string> read_reference(int references, const std::string& text);
void remove_references_to(int references, std::string_view id);
// Sorted.
std::vector<std::string> references_to(int references, std::string_view id);

}  // namespace casemate::images
