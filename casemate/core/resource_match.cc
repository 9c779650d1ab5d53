#include "casemate/core/resource_match.h"

namespace casemate {

std::vector<UnheldBound> unheld_bounds(const Resources& resources,
                                       const BackendDeclarations& declared) {
  std::vector<UnheldBound> unheld;
  const auto match = [&](std::string_view field, Limit limit, const ResourceLimit& bound) {
    if (!declared.enforceable_limits.contains(limit)) {
      unheld.push_back({field, limit, bound.value, bound.stated});
    }
  };
  match("memory_bytes", Limit::memory, resources.memory_bytes);
  match("pids", Limit::pids, resources.pids);
  match("cpu_millis", Limit::cpu, resources.cpu_millis);
  if (resources.cpu_seconds && !declared.cpu_seconds_enforceable) {
    unheld.push_back(
        {"cpu_seconds", Limit::cpu, resources.cpu_seconds->value, resources.cpu_seconds->stated});
  } else if (resources.cpu_seconds) {
    match("cpu_seconds", Limit::cpu, *resources.cpu_seconds);
  }
  match("disk_bytes", Limit::disk, resources.disk_bytes);
  match("disk_inodes", Limit::disk, resources.disk_inodes);
  match("open_files", Limit::files, resources.open_files);
  return unheld;
}

std::set<Limit> limits_not_held(const Resources& resources, const BackendDeclarations& declared) {
  std::set<Limit> limits;
  for (const UnheldBound& bound : unheld_bounds(resources, declared)) {
    if (!bound.stated) limits.insert(bound.limit);
  }
  return limits;
}

}  // namespace casemate
