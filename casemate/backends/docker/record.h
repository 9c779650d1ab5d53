#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "casemate/core/spec.h"

namespace casemate::docker {

// What is written on a container when it is made, for every process that uses, lists or ends it.
struct Record {
  SandboxKey key;
  std::string kind;
  // Empty where this build cannot read all of the record: nothing is adopted by it then.
  std::string fingerprint;
  // As the spec named it.
  std::string image;
  // The image's own variables, for every program.
  std::map<std::string, std::string> environment;
  std::string work_dir;
  std::map<std::string, std::string> labels;
  std::set<Limit> limits_not_held;
  // Seconds since 1970, by the clock of the host that made it.
  std::uint64_t created = 0;
  // The name of its directory on the host (places.h), 16 hex digits.
  std::string place;
  // Of the state directory that it belongs to (`Places::home`).
  std::string home;
  friend bool operator==(const Record&, const Record&) = default;
};

std::string encode_record(const Record& record);
// Whatever is missing, or is not as this build writes it, leaves the fingerprint empty. Nothing
// where not even key, kind and place can be read.
std::optional<Record> decode_record(std::string_view text);

// Whether that can be the name of a place.
bool is_place_name(std::string_view text);

}  // namespace casemate::docker
