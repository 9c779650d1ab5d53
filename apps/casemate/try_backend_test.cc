#include "apps/casemate/try_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>

#include "casemate/backends/in_process/backend.h"
#include "casemate/base/json.h"
#include "casemate/core/errors.h"

namespace casemate::app {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Declares exec and answers 1 to whatever runs: one program of five ends as it should not.
std::shared_ptr<SandboxBackend> always_one(const std::function<void()>& meanwhile = [] {}) {
  in_process::InProcessSandboxOptions script;
  script.on_exec = [meanwhile](const in_process::Execution&) {
    meanwhile();
    return in_process::finished("", 1);
  };
  in_process::InProcessBackendOptions options;
  options.declarations.capabilities = {Capability::exec};
  options.declarations.egress_modes = {};
  return std::make_shared<in_process::InProcessSandboxBackend>(
      std::make_shared<in_process::InProcessSandbox>(std::move(script)), std::move(options));
}

struct Tried {
  int status = -1;
  std::string out;
};

Tried try_it(conformance::ConformanceOptions options, OutputFormat format) {
  testing::internal::CaptureStdout();
  Tried tried;
  tried.status = try_backend(always_one(), std::move(options), format);
  tried.out = testing::internal::GetCapturedStdout();
  return tried;
}

TEST(TryBackend, AFailureIsALineWithWhatWasExpectedAndSeenAndExitsWithOne) {
  conformance::ConformanceOptions options;
  options.probes = {"exit-code-fidelity"};
  const Tried tried = try_it(options, OutputFormat::streams);
  EXPECT_EQ(tried.status, 1);
  EXPECT_THAT(tried.out, StartsWith("failed  exec          exit-code-fidelity  "));
  EXPECT_THAT(tried.out,
              HasSubstr("\n        sh -c 'exit 7'\n"
                        "        expected  exited 7, standard output '', standard error ''\n"
                        "        seen      exited 1, standard output '', standard error ''\n"));
  EXPECT_THAT(tried.out, HasSubstr("\nin-process: 0 passed, 1 failed, 0 skipped\n"));
}

TEST(TryBackend, AProbeThatWasStoppedUnderWayIsNoFailure) {
  std::stop_source stop;
  conformance::ConformanceOptions options;
  options.probes = {"exit-code-fidelity"};
  options.stop = stop.get_token();
  testing::internal::CaptureStdout();
  EXPECT_THROW(try_backend(always_one([&stop] { stop.request_stop(); }), std::move(options),
                           OutputFormat::streams),
               SandboxCancelled);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(TryBackend, WhatIsNotDeclaredIsSkippedWithItsReason) {
  conformance::ConformanceOptions options;
  options.probes = {"parents-are-created", "exit-code-fidelity"};
  EXPECT_THAT(try_it(options, OutputFormat::streams).out,
              HasSubstr("  files_in is not declared\n"));
}

TEST(TryBackend, AsJsonItIsOneArrayAndNothingElse) {
  conformance::ConformanceOptions options;
  options.suites = {conformance::Suite::exec};
  options.program_bound = std::chrono::milliseconds(10);
  const Tried tried = try_it(options, OutputFormat::json);
  EXPECT_EQ(tried.status, 1);
  const auto records = parse_json(tried.out).as_array();
  ASSERT_EQ(records.size(), 5U);
  EXPECT_EQ(records.at(0).at("status").as_string(), "failed");
}

}  // namespace
}  // namespace casemate::app
