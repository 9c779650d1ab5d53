#include "casemate/policy/purger.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "casemate/core/spec_match.h"

namespace casemate {

SandboxPurger::SandboxPurger(SandboxRouter router, Log log)
    : router_(std::move(router)), log_(std::move(log)) {}

int SandboxPurger::purge_scoped_thread(std::string_view scope,
                                       std::string_view thread_id) const noexcept {
  const int disposed = router_.dispose_scope(scope, thread_id);
  if (disposed == 0) return disposed;
  try {
    write_log(log_, LogLevel::info,
              fmt::format("purged {} sandboxes of scope {}, thread {}", disposed, quoted(scope),
                          quoted(thread_id)));
  } catch (const std::exception&) {
    // No memory for one line of the log is no reason to end the host.
  }
  return disposed;
}

}  // namespace casemate
