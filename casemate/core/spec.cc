#include "casemate/core/spec.h"

#include <fmt/format.h>

#include "casemate/base/digest.h"
#include "casemate/core/egress.h"
#include "casemate/core/errors.h"

namespace casemate {
namespace {

// Parts of a digest's input, each with its length in front, so that no two lists of parts give the
// same bytes.
class DigestInput {
 public:
  void text(std::string_view part) {
    bytes_ += fmt::format("{}:", part.size());
    bytes_ += part;
  }
  void number(std::uint64_t value) { text(std::to_string(value)); }
  // An absent part differs from an empty one.
  void optional_text(const std::optional<std::string>& part) {
    number(part ? 1 : 0);
    if (part) {
      text(*part);
    }
  }
  // A stated bound must be held and a default need not be: sandboxes of the two differ.
  void limit(const ResourceLimit& bound) {
    number(bound.value);
    number(bound.stated ? 1 : 0);
  }
  std::string digest() const { return sha256_hex(bytes_); }

 private:
  std::string bytes_;
};

std::string join_hosts(const std::vector<HostPattern>& hosts) {
  std::vector<std::string> texts;
  texts.reserve(hosts.size());
  for (const HostPattern& host : hosts) {
    texts.push_back(host.text());
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

void check_key(const SandboxKey& key) {
  const auto check = [](std::string_view part, const std::string& value) {
    if (value.empty()) {
      throw InvalidArgument(
          fmt::format("the sandbox key's {} is empty; a non-empty string is accepted", part),
          "give every part of the key a value");
    }
  };
  check("scope", key.scope);
  check("thread_id", key.thread_id);
  check("agent_dir", key.agent_dir);
}

void check_spec(const SandboxSpec& spec) {
  if (spec.kind.empty()) {
    throw InvalidArgument("the spec's kind is empty; a non-empty string is accepted",
                          "name what the sandbox is for, for example \"codeact\"");
  }
  if (!spec.egress_allow.empty() && spec.egress != Egress::allowlist) {
    throw InvalidArgument(
        fmt::format("egress_allow lists {} but the egress mode is {}; hosts are accepted only with "
                    "allowlist",
                    join_hosts(spec.egress_allow), to_string(spec.egress)),
        "set egress to allowlist or leave the list empty");
  }
  static_cast<void>(door_rules(spec.egress_allow));  // for its bounds
  if (spec.image) {
    image_form(*spec.image);
  }
  if (spec.keep_idle < std::chrono::milliseconds::zero()) {
    throw InvalidArgument(
        fmt::format("keep_idle of {} ms is refused: 0 or more is accepted", spec.keep_idle.count()),
        "use 0 to end the sandbox with its last lease");
  }
  check_resources(spec.resources);
}

std::string spec_fingerprint(const SandboxSpec& spec, std::string_view guest_build) {
  DigestInput input;
  input.text("casemate spec 1");
  input.text(guest_build);
  input.optional_text(spec.image);
  input.optional_text(spec.image_id);
  input.text(to_string(spec.egress));
  // The order and the number of times a host is listed do not change what may be reached.
  std::set<std::string> hosts;
  for (const HostPattern& host : spec.egress_allow) {
    hosts.insert(host.text());
  }
  input.number(hosts.size());
  for (const std::string& host : hosts) {
    input.text(host);
  }
  input.text(spec.work_dir);
  const Resources& resources = spec.resources;
  input.limit(resources.memory_bytes);
  input.limit(resources.pids);
  input.limit(resources.cpu_millis);
  input.number(resources.cpu_seconds ? 1 : 0);
  input.limit(resources.cpu_seconds.value_or(ResourceLimit{}));
  input.limit(resources.disk_bytes);
  input.limit(resources.disk_inodes);
  input.limit(resources.open_files);
  return input.digest();
}

std::string identity_digest(const SandboxKey& key, std::string_view kind) {
  constexpr std::size_t kHexDigits = 24;
  DigestInput input;
  input.text(key.scope);
  input.text(key.thread_id);
  input.text(key.agent_dir);
  input.text(kind);
  return input.digest().substr(0, kHexDigits);
}

ImageForm image_form(std::string_view reference) {
  if (reference.empty()) {
    throw InvalidArgument(
        "an image reference is empty; host, dir:PATH, oci:PATH, docker-archive:PATH or a registry "
        "reference is accepted",
        "leave the image out for the backend's own");
  }
  if (reference == "host") {
    return ImageForm::host;
  }
  if (reference.starts_with("dir:")) {
    return ImageForm::dir;
  }
  if (reference.starts_with("oci:")) {
    return ImageForm::oci;
  }
  if (reference.starts_with("docker-archive:")) {
    return ImageForm::docker_archive;
  }
  return ImageForm::registry;
}

}  // namespace casemate
