#include "casemate/images/documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/reference.h"

namespace casemate::images {
namespace {

namespace json = boost::json;

constexpr std::string_view kNameAnnotation = "org.opencontainers.image.ref.name";
constexpr std::array<std::string_view, 2> kIndexTypes = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json"};
constexpr std::array<std::string_view, 2> kManifestTypes = {
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json"};
// How a layer is compressed is read from its bytes. Layers that are kept elsewhere (foreign, non-
// distributable) or encrypted are not here.
constexpr std::array<std::string_view, 5> kLayerTypes = {
    "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd", "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip"};
constexpr std::size_t kMaxEnvironmentBytes = 128 * 1024;

// A document, for what its refusals say.
class Document {
 public:
  Document(std::string_view name, std::string_view text) : name_(name) {
    try {
      value_ = parse_json(text, {.max_bytes = kMaxDocumentBytes});
    } catch (const JsonError& error) {
      refuse(fmt::format("is no JSON: {}", error.what()));
    }
  }

  [[noreturn]] void refuse(std::string_view why) const {
    throw SandboxImageInvalid(fmt::format("the image's {} {}", name_, why),
                              "export the image anew");
  }

  const json::value& root() const { return value_; }

  const json::object& object(const json::value& value, std::string_view what) const {
    if (!value.is_object()) refuse(fmt::format("holds no object as {}", what));
    return value.get_object();
  }
  const json::array& array(const json::object& in, std::string_view key) const {
    const json::value* found = in.if_contains(key);
    if (found == nullptr || !found->is_array()) refuse(fmt::format("holds no array '{}'", key));
    return found->get_array();
  }
  std::string text(const json::value& value, std::string_view what) const {
    if (!value.is_string()) refuse(fmt::format("holds no text as {}", what));
    return std::string(value.get_string());
  }
  // Empty where there is none.
  std::string text_or_none(const json::object& in, std::string_view key) const {
    const json::value* found = in.if_contains(key);
    return found == nullptr || found->is_null() ? std::string() : text(*found, key);
  }

  std::string digest(const json::value& value, std::string_view what) const {
    std::string found = text(value, what);
    if (!is_digest(found)) {
      refuse(fmt::format("has '{}' as {}; sha256: and 64 lower-case hex digits is accepted",
                         escape_for_display(found, 100), what));
    }
    return found;
  }

  Descriptor descriptor(const json::value& value, std::string_view what) const {
    const json::object& from = object(value, what);
    Descriptor found;
    found.media_type = text_or_none(from, "mediaType");
    const json::value* named = from.if_contains("digest");
    if (named == nullptr) refuse(fmt::format("gives {} no digest", what));
    found.digest = digest(*named, fmt::format("the digest of {}", what));
    const json::value* size = from.if_contains("size");
    if (size != nullptr && size->is_int64() && size->get_int64() >= 0) {
      found.size = static_cast<std::uint64_t>(size->get_int64());
    } else {
      refuse(fmt::format("gives {} no size", what));
    }
    if (const json::value* notes = from.if_contains("annotations"); notes && notes->is_object()) {
      found.name = text_or_none(notes->get_object(), kNameAnnotation);
    }
    if (const json::value* platform = from.if_contains("platform");
        platform && platform->is_object()) {
      found.os = text_or_none(platform->get_object(), "os");
      found.architecture = text_or_none(platform->get_object(), "architecture");
    }
    return found;
  }

 private:
  std::string_view name_;
  json::value value_;
};

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& all, std::string_view value) {
  return std::ranges::find(all, value) != all.end();
}

bool fits(const Descriptor& entry, const Platform& platform) {
  return entry.os == platform.os && entry.architecture == platform.architecture;
}

std::string names_of(const std::vector<Descriptor>& entries) {
  std::vector<std::string> names;
  for (const Descriptor& entry : entries) {
    names.push_back(!entry.name.empty() ? escape_for_display(entry.name, 100)
                    : !entry.os.empty() ? escape_for_display(entry.os + "/" + entry.architecture)
                                        : entry.digest);
    if (names.size() == 8) break;
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> member_names(const Document& document, const json::array& array) {
  std::vector<std::string> names;
  for (const json::value& value : array) names.push_back(document.text(value, "a layer"));
  if (names.empty()) document.refuse("names no layer");
  if (names.size() > kMaxLayers) {
    document.refuse(fmt::format("names {} layers; {} are accepted", names.size(), kMaxLayers));
  }
  return names;
}

}  // namespace

Platform this_platform() {
  utsname name{};
  if (uname(&name) < 0) return {.os = "linux", .architecture = ""};
  const std::string_view machine = name.machine;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kNames{
      {{"x86_64", "amd64"},
       {"aarch64", "arm64"},
       {"i686", "386"},
       {"ppc64le", "ppc64le"},
       {"riscv64", "riscv64"},
       {"s390x", "s390x"}}};
  for (const auto& [kernel, images] : kNames) {
    if (machine == kernel) return {.os = "linux", .architecture = std::string(images)};
  }
  return {.os = "linux", .architecture = std::string(machine)};
}

bool is_index(const Descriptor& descriptor) {
  return is_one_of(kIndexTypes, descriptor.media_type);
}

Descriptor choose_manifest(std::string_view index, std::string_view tag, const Platform& platform) {
  const Document document("index", index);
  std::vector<Descriptor> entries;
  for (const json::value& value :
       document.array(document.object(document.root(), "the index"), "manifests")) {
    Descriptor entry = document.descriptor(value, "an entry");
    const bool image = is_index(entry) || is_one_of(kManifestTypes, entry.media_type);
    // What builders attach to an image says "unknown" of its machine.
    if (image && entry.os != "unknown") entries.push_back(std::move(entry));
  }
  if (entries.empty()) document.refuse("names no image");
  std::vector<Descriptor> found = entries;
  if (!tag.empty()) {
    std::erase_if(found, [&](const Descriptor& entry) { return entry.name != tag; });
    if (found.empty()) {
      throw SandboxImageInvalid(
          fmt::format("the image's index has no tag '{}'; it has {}", tag, names_of(entries)),
          "name one of them");
    }
  }
  if (found.size() > 1) {
    std::erase_if(found, [&](const Descriptor& entry) { return !fits(entry, platform); });
  }
  if (found.size() == 1) return found.front();
  throw SandboxImageInvalid(fmt::format("the image's index has {} for {}/{}; it has {}",
                                        found.empty() ? "nothing" : "several images", platform.os,
                                        platform.architecture, names_of(entries)),
                            "name one by its tag, oci:PATH:TAG");
}

Manifest parse_manifest(std::string_view text) {
  const Document document("manifest", text);
  const json::object& root = document.object(document.root(), "the manifest");
  const json::value* config = root.if_contains("config");
  if (config == nullptr) document.refuse("names no config");
  Manifest manifest;
  manifest.config = document.descriptor(*config, "the config");
  if (manifest.config.size > kMaxDocumentBytes) {
    document.refuse(fmt::format("gives the config {} bytes; {} are accepted", manifest.config.size,
                                kMaxDocumentBytes));
  }
  for (const json::value& value : document.array(root, "layers")) {
    Descriptor layer = document.descriptor(value, "a layer");
    if (!is_one_of(kLayerTypes, layer.media_type)) {
      document.refuse(
          fmt::format("has a layer of type '{}'; a tar, plain or with gzip or zstd, is "
                      "accepted",
                      escape_for_display(layer.media_type, 100)));
    }
    manifest.layers.push_back(std::move(layer));
  }
  if (manifest.layers.size() > kMaxLayers) {
    document.refuse(
        fmt::format("names {} layers; {} are accepted", manifest.layers.size(), kMaxLayers));
  }
  return manifest;
}

ImageConfig parse_config(std::string_view text, const Platform& platform) {
  const Document document("config", text);
  const json::object& root = document.object(document.root(), "the config");
  ImageConfig config;
  config.platform = {.os = document.text_or_none(root, "os"),
                     .architecture = document.text_or_none(root, "architecture")};
  if (config.platform.os != platform.os || config.platform.architecture != platform.architecture) {
    throw SandboxImageInvalid(fmt::format("the image is for {}/{}, this machine is {}/{}",
                                          escape_for_display(config.platform.os, 60),
                                          escape_for_display(config.platform.architecture, 60),
                                          platform.os, platform.architecture),
                              "use an image built for this machine");
  }
  const json::value* rootfs = root.if_contains("rootfs");
  if (rootfs == nullptr) document.refuse("names no layers");
  for (const json::value& value : document.array(document.object(*rootfs, "rootfs"), "diff_ids")) {
    config.diff_ids.push_back(document.digest(value, "the digest of a layer"));
  }
  const json::value* inner = root.if_contains("config");
  if (inner == nullptr || inner->is_null()) return config;
  const json::object& settings = document.object(*inner, "config");
  const json::value* environment = settings.if_contains("Env");
  if (environment == nullptr || environment->is_null()) return config;
  std::size_t bytes = 0;
  for (const json::value& value : document.array(settings, "Env")) {
    const std::string entry = document.text(value, "a variable");
    bytes += entry.size();
    const std::size_t equals = entry.find('=');
    if (equals == 0 || equals == entry.npos || entry.find('\0') != entry.npos) {
      document.refuse(fmt::format("has the variable '{}'; NAME=VALUE is accepted",
                                  escape_for_display(entry, 100)));
    }
    config.environment.insert_or_assign(entry.substr(0, equals), entry.substr(equals + 1));
  }
  if (bytes > kMaxEnvironmentBytes) {
    document.refuse(
        fmt::format("has {} bytes of variables; {} are accepted", bytes, kMaxEnvironmentBytes));
  }
  return config;
}

ArchiveManifest parse_archive_manifest(std::string_view text) {
  const Document document("manifest.json", text);
  if (!document.root().is_array()) document.refuse("is no array");
  const json::array& images = document.root().get_array();
  if (images.size() != 1) {
    throw SandboxImageInvalid(
        fmt::format("the archive holds {} images; one is accepted", images.size()),
        "save one image, `docker save IMAGE -o FILE`");
  }
  const json::object& image = document.object(images.front(), "an image");
  ArchiveManifest manifest;
  manifest.config = document.text_or_none(image, "Config");
  if (manifest.config.empty()) document.refuse("names no config");
  manifest.layers = member_names(document, document.array(image, "Layers"));
  return manifest;
}

}  // namespace casemate::images
