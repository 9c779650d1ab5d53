#include "casemate/backends/docker/labels.h"

#include <algorithm>

#include "casemate/base/digest.h"

namespace casemate::docker {
namespace {

constexpr std::size_t kMaxPlain = 63;
constexpr std::string_view kHashed = "sha256-";
constexpr std::size_t kHashDigits = 48;

bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '.' || letter == '_' || letter == '-';
}

bool looks_hashed(std::string_view value) {
  if (value.size() != kHashed.size() + kHashDigits || !value.starts_with(kHashed)) return false;
  return value.find_first_not_of("0123456789abcdef", kHashed.size()) == value.npos;
}

bool has(const std::map<std::string, std::string>& labels, std::string_view name,
         std::string_view value) {
  const auto found = labels.find(std::string(name));
  return found != labels.end() && found->second == value;
}

}  // namespace

std::string label_value(std::string_view value) {
  const bool plain = value.size() <= kMaxPlain && std::all_of(value.begin(), value.end(), is_plain);
  if (plain && !looks_hashed(value)) return std::string(value);
  return std::string(kHashed) + sha256_hex(value).substr(0, kHashDigits);
}

std::map<std::string, std::string> labels_of(const SandboxKey& key, const SandboxSpec& spec,
                                             std::string_view fingerprint) {
  std::map<std::string, std::string> labels;
  const auto add = [&](std::string_view name, std::string value) {
    labels.insert_or_assign(std::string(name), std::move(value));
  };
  for (const auto& [name, value] : spec.labels) {
    add(std::string(kSpecLabelPrefix) + name, label_value(value));
  }
  add(kOwnerLabel, std::string(kOwner));
  add(kScopeLabel, label_value(key.scope));
  add(kThreadLabel, label_value(key.thread_id));
  add(kAgentLabel, label_value(key.agent_dir));
  add(kKindLabel, label_value(spec.kind));
  add(kFingerprintLabel, label_value(fingerprint));
  return labels;
}

bool is_owned(const std::map<std::string, std::string>& labels) {
  return has(labels, kOwnerLabel, kOwner);
}

bool is_of(const std::map<std::string, std::string>& labels, const SandboxKey& key,
           std::string_view kind) {
  return is_owned(labels) && has(labels, kScopeLabel, label_value(key.scope)) &&
         has(labels, kThreadLabel, label_value(key.thread_id)) &&
         has(labels, kAgentLabel, label_value(key.agent_dir)) &&
         has(labels, kKindLabel, label_value(kind));
}

std::string container_name(const SandboxKey& key, std::string_view kind) {
  return "casemate-" + identity_digest(key, kind);
}

}  // namespace casemate::docker
