#include "casemate/transfer/file_store.h"

#include <fmt/format.h>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/transfer/artifact_name.h"
#include "casemate/transfer/read_regular.h"

namespace casemate {

InMemoryStore::InMemoryStore(std::map<std::string, std::string> files) {
  for (auto& [name, content] : files) {
    validate_artifact_name(name);
    files_.emplace(name, std::move(content));
  }
}

std::vector<std::string> InMemoryStore::list() const {
  std::vector<std::string> names;
  names.reserve(files_.size());
  for (const auto& [name, content] : files_) {
    names.push_back(name);
  }
  return names;
}

std::optional<std::string> InMemoryStore::read(std::string_view name,
                                               std::uint64_t max_bytes) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    return std::nullopt;
  }
  if (found->second.size() > max_bytes) {
    throw over_read_cap(name, max_bytes);
  }
  return found->second;
}

}  // namespace casemate
