#include <system_error>

#include "casemate/sys/beneath.h"
#include "casemate/transfer/artifact_name.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/read_regular.h"

namespace casemate {

NamedFilesStore::NamedFilesStore(
    const std::vector<std::pair<std::string, std::filesystem::path>>& files) {
  NameSet names(NameComparison::exact);
  for (const auto& [name, path] : files) {
    validate_artifact_name(name);
    names.add(name);
    files_.emplace(name, path);
  }
}

std::vector<std::string> NamedFilesStore::list() const {
  std::vector<std::string> names;
  names.reserve(files_.size());
  for (const auto& [name, path] : files_) {
    names.push_back(name);
  }
  return names;
}

std::optional<std::string> NamedFilesStore::read(std::string_view name,
                                                 std::uint64_t max_bytes) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    return std::nullopt;
  }
  // As it was given: the name is said beside the path where it is another than the path's last
  // part.
  const std::string subject = found->first == found->second.filename()
                                  ? found->second.native()
                                  : found->first + "=" + found->second.native();
  try {
    return read_regular(sys::open_path(found->second.native(), kOpenToLook), subject, max_bytes);
  } catch (const std::system_error& error) {
    throw file_refusal(subject, error.code().value());
  }
}

}  // namespace casemate
