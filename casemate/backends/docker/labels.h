#pragma once

// What stands on everything that is ours with an engine, and how it is found again.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/spec.h"

namespace casemate::docker {

// Nothing without it is ever touched.
inline constexpr std::string_view kOwnerLabel = "casemate.owner";
inline constexpr std::string_view kOwner = "casemate";
inline constexpr std::string_view kScopeLabel = "casemate.scope";
inline constexpr std::string_view kThreadLabel = "casemate.thread";
inline constexpr std::string_view kAgentLabel = "casemate.agent";
inline constexpr std::string_view kKindLabel = "casemate.kind";
inline constexpr std::string_view kFingerprintLabel = "casemate.fingerprint";
// A spec's own labels stand behind this prefix, where they cannot shadow ours.
inline constexpr std::string_view kSpecLabelPrefix = "casemate.label.";
// What another process has to know of a sandbox to use it (record.h).
inline constexpr std::string_view kRecordLabel = "casemate.record";

// `value` as it is when it has at most 63 characters, all of [A-Za-z0-9._-], and is none of those
// below itself; else "sha256-" and the first 48 digits of its SHA-256. The same for asking.
std::string label_value(std::string_view value);

// Of a sandbox; the record is the caller's to add.
std::map<std::string, std::string> labels_of(const SandboxKey& key, const SandboxSpec& spec,
                                             std::string_view fingerprint);

// Whether those are the labels of something of ours.
bool is_owned(const std::map<std::string, std::string>& labels);

// Whether those are the labels of that key and kind: a name may be another's.
bool is_of(const std::map<std::string, std::string>& labels, const SandboxKey& key,
           std::string_view kind);

// "casemate-" and the 24 digits of `identity_digest`.
std::string container_name(const SandboxKey& key, std::string_view kind);

}  // namespace casemate::docker
