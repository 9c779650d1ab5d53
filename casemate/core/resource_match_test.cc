#include "casemate/core/resource_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace casemate {
namespace {

const std::set<Limit> kEvery{Limit::memory, Limit::pids, Limit::disk, Limit::cpu, Limit::files};

BackendDeclarations holding(std::set<Limit> limits, bool cpu_seconds = false) {
  BackendDeclarations declared;
  declared.enforceable_limits = std::move(limits);
  declared.cpu_seconds_enforceable = cpu_seconds;
  return declared;
}

std::vector<std::string_view> fields(const Resources& resources,
                                     const BackendDeclarations& declared) {
  std::vector<std::string_view> names;
  for (const UnheldBound& bound : unheld_bounds(resources, declared)) names.push_back(bound.field);
  return names;
}

TEST(ResourceMatch, ABackendThatHoldsEveryLimitHoldsEveryBound) {
  Resources resources;
  resources.cpu_seconds = stated(5);
  EXPECT_TRUE(unheld_bounds(resources, holding(kEvery, true)).empty());
}

TEST(ResourceMatch, ABackendThatSaysNothingHoldsNothing) {
  Resources resources;
  resources.cpu_seconds = stated(5);
  EXPECT_THAT(fields(resources, BackendDeclarations()),
              testing::ElementsAre("memory_bytes", "pids", "cpu_millis", "cpu_seconds",
                                   "disk_bytes", "disk_inodes", "open_files"));
}

TEST(ResourceMatch, EachLimitHoldsItsOwnBounds) {
  const auto without = [](Limit limit) {
    std::set<Limit> rest = kEvery;
    rest.erase(limit);
    return fields(Resources(), holding(rest, true));
  };
  EXPECT_THAT(without(Limit::memory), testing::ElementsAre("memory_bytes"));
  EXPECT_THAT(without(Limit::pids), testing::ElementsAre("pids"));
  EXPECT_THAT(without(Limit::cpu), testing::ElementsAre("cpu_millis"));
  EXPECT_THAT(without(Limit::disk), testing::ElementsAre("disk_bytes", "disk_inodes"));
  EXPECT_THAT(without(Limit::files), testing::ElementsAre("open_files"));
}

TEST(ResourceMatch, ProcessorSecondsNeedTheLimitAndTheWordForThem) {
  Resources resources;
  resources.cpu_seconds = stated(5);
  EXPECT_THAT(fields(resources, holding(kEvery, false)), testing::ElementsAre("cpu_seconds"));
  EXPECT_THAT(fields(resources, holding({}, true)), testing::Contains("cpu_seconds"));
}

TEST(ResourceMatch, SaysTheValueAndWhetherItWasStated) {
  Resources resources;
  resources.pids = stated(9);
  EXPECT_THAT(unheld_bounds(resources, holding({Limit::memory, Limit::cpu, Limit::disk})),
              testing::ElementsAre(UnheldBound{"pids", Limit::pids, 9, true},
                                   UnheldBound{"open_files", Limit::files, 1024, false}));
}

TEST(ResourceMatch, OnlyDefaultsShowAsNotHeld) {
  Resources resources;
  resources.pids = stated(9);
  EXPECT_EQ(limits_not_held(resources, holding({Limit::memory, Limit::cpu, Limit::disk})),
            std::set{Limit::files});
  EXPECT_EQ(limits_not_held(Resources(), BackendDeclarations()), kEvery);
}

}  // namespace
}  // namespace casemate
