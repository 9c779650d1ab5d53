#include "casemate/images/reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/spec.h"

namespace casemate::images {
namespace {

constexpr std::string_view kDigestPrefix = "sha256:";
constexpr std::size_t kHexDigits = 64;
// distribution/reference, the grammar that registries follow.
constexpr std::size_t kMaxTagBytes = 128;
constexpr std::size_t kMaxRepositoryBytes = 255;
constexpr std::string_view kDefaultRegistry = "docker.io";
constexpr std::string_view kDefaultNamespace = "library/";
constexpr std::string_view kDefaultTag = "latest";

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_word(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '_'; }

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw InvalidArgument(
      fmt::format("the image reference '{}' is refused: {}", escape_for_display(text), why),
      "host, dir:PATH, oci:PATH[:TAG], docker-archive:PATH, sha256:ID of `casemate image ls` or a "
      "registry reference like docker.io/library/python:3.13-slim is accepted");
}

// No repository's name begins like that: whoever wrote it meant a file, and left the form out.
void refuse_bare_path(std::string_view text) {
  const auto begins = [&](std::string_view with) { return text.starts_with(with); };
  if (!begins("/") && !begins("./") && !begins("../")) return;
  const auto ends = [&](std::string_view with) { return text.ends_with(with); };
  const std::string shown = escape_for_display(text);
  refuse(
      text,
      ends(".tar") || ends(".tar.gz") || ends(".tgz")
          ? fmt::format("it is a path without its form; did you mean docker-archive:{}?", shown)
          : fmt::format("it is a path without its form; did you mean dir:{0} or oci:{0}?", shown));
}

bool is_hex(std::string_view digits) {
  return std::ranges::all_of(
      digits, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Whatever begins like an id is one: as a registry reference it would name a stranger's image, in a
// repository called "sha256".
std::string take_id(std::string_view text) {
  const std::string_view digits = text.substr(kDigestPrefix.size());
  if (digits.size() < kMinIdDigits || digits.size() > kHexDigits || !is_hex(digits)) {
    throw InvalidArgument(
        fmt::format("the image id '{}' is refused; sha256: and {} to {} lower-case hex digits are "
                    "accepted",
                    escape_for_display(text), kMinIdDigits, kHexDigits),
        "`casemate image ls` shows the ids of what is here");
  }
  return std::string(text);
}

bool is_tag(std::string_view tag) {
  return !tag.empty() && tag.size() <= kMaxTagBytes && is_word(tag.front()) &&
         std::ranges::all_of(tag, [](char c) { return is_word(c) || c == '.' || c == '-'; });
}

// `a`, `a.b`, `a_b`, `a__b`, `a--b`: runs of letters and digits between separators.
bool is_path_component(std::string_view component) {
  if (component.empty() || !is_lower_or_digit(component.front()) ||
      !is_lower_or_digit(component.back())) {
    return false;
  }
  for (std::size_t at = 0; at < component.size();) {
    if (is_lower_or_digit(component[at])) {
      ++at;
      continue;
    }
    const char separator = component[at];
    std::size_t run = 0;
    while (at + run < component.size() && component[at + run] == separator) ++run;
    const std::size_t most = separator == '.' ? 1 : separator == '_' ? 2 : component.size();
    if ((separator != '.' && separator != '_' && separator != '-') || run > most) return false;
    at += run;
    if (!is_lower_or_digit(component[at])) return false;
  }
  return true;
}

bool is_registry_host(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon != host.npos) {
    const std::string_view port = host.substr(colon + 1);
    if (port.empty() || port.size() > 5 ||
        !std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; })) {
      return false;
    }
    host = host.substr(0, colon);
  }
  if (host.empty() || host.front() == '-' || host.front() == '.') return false;
  return std::ranges::all_of(
      host, [](char c) { return (is_word(c) && c != '_') || c == '.' || c == '-'; });
}

// A first component is a host when it cannot be part of a path on Docker Hub.
bool reads_as_host(std::string_view component) {
  return component == "localhost" || component.find_first_of(".:") != component.npos ||
         std::ranges::any_of(component, [](char c) { return c >= 'A' && c <= 'Z'; });
}

ImageReference parse_registry(std::string_view text) {
  ImageReference reference;
  reference.form = ImageForm::registry;
  std::string_view rest = text;
  if (const std::size_t at = rest.find('@'); at != rest.npos) {
    reference.digest = rest.substr(at + 1);
    if (!is_digest(reference.digest)) {
      refuse(text, "behind @ stands no digest; sha256: and 64 lower-case hex digits is accepted");
    }
    rest = rest.substr(0, at);
  }
  const std::size_t slash = rest.rfind('/');
  const std::size_t colon = rest.find(':', slash == rest.npos ? 0 : slash);
  if (colon != rest.npos) {
    reference.tag = rest.substr(colon + 1);
    if (!is_tag(reference.tag)) {
      refuse(text, "its tag is not one: up to 128 letters, digits, _ . - are accepted");
    }
    rest = rest.substr(0, colon);
  }
  std::string_view host = kDefaultRegistry;
  std::string path(rest);
  const std::size_t first = rest.find('/');
  if (first != rest.npos && reads_as_host(rest.substr(0, first))) {
    host = rest.substr(0, first);
    path = rest.substr(first + 1);
  }
  if (host == "index.docker.io") host = kDefaultRegistry;
  if (!is_registry_host(host)) refuse(text, "its registry is no HOST or HOST:PORT");
  if (host == kDefaultRegistry && path.find('/') == path.npos) path.insert(0, kDefaultNamespace);
  for (std::string_view part = path;;) {
    const std::size_t end = part.find('/');
    if (!is_path_component(part.substr(0, end))) {
      refuse(text,
             "it is not a repository's name: lower-case letters and digits, parted by . _ __ - and "
             "/, are accepted");
    }
    if (end == part.npos) break;
    part.remove_prefix(end + 1);
  }
  reference.repository = fmt::format("{}/{}", host, path);
  if (reference.repository.size() > kMaxRepositoryBytes) {
    refuse(text, fmt::format("its name has more than {} bytes", kMaxRepositoryBytes));
  }
  if (!reference.digest.empty()) {
    reference.tag.clear();
    reference.text = fmt::format("{}@{}", reference.repository, reference.digest);
  } else {
    if (reference.tag.empty()) reference.tag = kDefaultTag;
    reference.text = fmt::format("{}:{}", reference.repository, reference.tag);
  }
  return reference;
}

}  // namespace

bool is_digest(std::string_view text) {
  if (!text.starts_with(kDigestPrefix)) return false;
  text.remove_prefix(kDigestPrefix.size());
  return text.size() == kHexDigits && is_hex(text);
}

ImageReference parse_image_reference(std::string_view text) {
  if (text.find('\0') != text.npos) refuse(text, "it holds a NUL byte");
  ImageReference reference;
  reference.form = image_form(text);
  reference.text = text;
  const auto take_path = [&](std::string_view path) {
    if (path.empty()) refuse(text, "its path is empty");
    reference.path = path;
  };
  switch (reference.form) {
    case ImageForm::host:
      return reference;
    case ImageForm::dir:
      take_path(text.substr(4));
      return reference;
    case ImageForm::docker_archive:
      take_path(text.substr(15));
      return reference;
    case ImageForm::oci: {
      std::string_view path = text.substr(4);
      const std::size_t colon = path.rfind(':');
      if (colon != path.npos && path.find('/', colon) == path.npos) {
        reference.tag = path.substr(colon + 1);
        if (!is_tag(reference.tag)) {
          refuse(text, "its tag is not one: up to 128 letters, digits, _ . - are accepted");
        }
        path = path.substr(0, colon);
      }
      take_path(path);
      return reference;
    }
    case ImageForm::registry:
      refuse_bare_path(text);
      if (!text.starts_with(kDigestPrefix)) return parse_registry(text);
      reference.id = take_id(text);
      return reference;
  }
  refuse(text, "its form is unknown");
}

}  // namespace casemate::images
