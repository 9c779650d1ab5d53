#pragma once

#include <string_view>

#include "casemate/base/log.h"
#include "casemate/policy/router.h"

namespace casemate {

// For hosts that end conversations from a cleanup hook of their own. Thread-safe.
class SandboxPurger {
 public:
  explicit SandboxPurger(SandboxRouter router, Log log = {});

  // `SandboxRouter::dispose_scope`; a count other than 0 is logged. Never throws.
  int purge_scoped_thread(std::string_view scope, std::string_view thread_id) const noexcept;

 private:
  SandboxRouter router_;
  Log log_;
};

}  // namespace casemate
