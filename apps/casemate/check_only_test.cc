#include "apps/casemate/check_only.h"

#include <gtest/gtest.h>

#include "casemate/backends/in_process/backend.h"
#include "casemate/core/errors.h"

namespace casemate::app {
namespace {

TEST(CheckOnly, ClaimsWhatTheBackendClaimsAndStartsNothing) {
  const auto real = std::make_shared<in_process::InProcessSandboxBackend>();
  const auto wrapped = start_nothing({real});
  ASSERT_EQ(wrapped.size(), 1U);
  EXPECT_EQ(wrapped[0]->declarations().name, real->declarations().name);
  EXPECT_THROW(wrapped[0]->acquire({"s", "t", "a"}, SandboxSpec{.kind = "codeact"}, {}),
               WouldStart);
  EXPECT_TRUE(real->keys().empty());
}

TEST(CheckOnly, RefusesWhatTheBackendRefuses) {
  in_process::InProcessBackendOptions options;
  options.acquire_error =
      std::make_exception_ptr(SandboxLimitNotEnforceable("no machine has so much", "give less"));
  const auto wrapped =
      start_nothing({std::make_shared<in_process::InProcessSandboxBackend>(nullptr, options)});
  EXPECT_THROW(wrapped[0]->acquire({"s", "t", "a"}, SandboxSpec{.kind = "codeact"}, {}),
               SandboxLimitNotEnforceable);
}

}  // namespace
}  // namespace casemate::app
