#include "casemate/images/store_records.h"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <exception>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/images/reference.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/staged_file.h"

namespace casemate::images {
namespace {

namespace json = boost::json;

constexpr char kImageName[] = "image.json";
constexpr std::size_t kMaxRecordBytes = 1 << 20;

struct Reference {
  std::string text;
  std::string id;
};

std::string file_of(const std::string& text) { return sha256_hex(text) + ".json"; }

std::optional<Reference> read_file(int references, const std::string& name) {
  const auto text = sys::read_file_if_there(references, name.c_str(), kMaxRecordBytes);
  if (!text) return std::nullopt;
  try {
    const json::value value = parse_json(*text);
    const json::object& record = value.as_object();
    Reference found{.text = std::string(record.at("reference").as_string()),
                    .id = std::string(record.at("image").as_string())};
    if (!is_digest(found.id)) return std::nullopt;
    return found;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

void write_image_record(int directory, const StoredImage& image) {
  json::array environment;
  for (const auto& [name, value] : image.environment) {
    environment.push_back(json::array{json::string(name), json::string(value)});
  }
  const json::object record{{"id", image.id},
                            {"architecture", image.architecture},
                            {"layers", image.layers},
                            {"bytes", image.bytes},
                            {"files", image.files},
                            {"passed_over", image.passed_over},
                            {"imported", image.imported},
                            {"environment", std::move(environment)}};
  sys::write_file_at(directory, kImageName, serialise_json(record), 0600);
}

std::optional<StoredImage> read_image_record(int directory) {
  const auto text = sys::read_file_if_there(directory, kImageName, kMaxRecordBytes);
  if (!text) return std::nullopt;
  try {
    const json::value value = parse_json(*text);
    const json::object& record = value.as_object();
    StoredImage image;
    image.id = record.at("id").as_string();
    image.architecture = record.at("architecture").as_string();
    image.layers = record.at("layers").to_number<std::uint64_t>();
    image.bytes = record.at("bytes").to_number<std::uint64_t>();
    image.files = record.at("files").to_number<std::uint64_t>();
    image.passed_over = record.at("passed_over").to_number<std::uint64_t>();
    image.imported = record.at("imported").to_number<std::int64_t>();
    for (const json::value& pair : record.at("environment").as_array()) {
      image.environment.emplace(std::string(pair.as_array().at(0).as_string()),
                                std::string(pair.as_array().at(1).as_string()));
    }
    if (!is_digest(image.id)) return std::nullopt;
    return image;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void write_reference(int references, const std::string& text, const std::string& id) {
  if (const auto before = read_reference(references, text); before == id) return;
  // Paths may be no UTF-8; the file's name tells them apart all the same.
  const json::object record{{"reference", replace_invalid_utf8(text)}, {"image", id}};
  sys::replace_whole_file(references, file_of(text), serialise_json(record));
}

std::optional<std::string> read_reference(int references, const std::string& text) {
  const auto found = read_file(references, file_of(text));
  return found ? std::optional(found->id) : std::nullopt;
}

void remove_references_to(int references, std::string_view id) {
  for (const std::string& name : sys::list_directory_at(references, ".")) {
    const auto found = read_file(references, name);
    if (!found || found->id != id) continue;
    if (unlinkat(references, name.c_str(), 0) < 0 && errno != ENOENT) {
      sys::throw_errno("removing an image's reference");
    }
  }
}

std::vector<std::string> references_to(int references, std::string_view id) {
  std::vector<std::string> texts;
  for (const std::string& name : sys::list_directory_at(references, ".")) {
    const auto found = read_file(references, name);
    if (found && found->id == id) texts.push_back(found->text);
  }
  std::ranges::sort(texts);
  return texts;
}

}  // namespace casemate::images
