#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "casemate/policy/backends_test.h"
#include "casemate/policy/router.h"

namespace casemate {
namespace {

using testing::HasSubstr;

using Backends = std::vector<std::shared_ptr<SandboxBackend>>;

std::string code_when_made(Backends backends, RouterOptions options = {}) {
  return code_of([&] { SandboxRouter(std::move(backends), std::move(options)); });
}

constexpr auto kUnknownRung = static_cast<Isolation>(200);

TEST(RouterConstruction, RefusesANullBackend) {
  EXPECT_EQ(code_when_made({backend_at("vm", Isolation::vm), nullptr}), "InvalidArgument");
}

TEST(RouterConstruction, RefusesAnUnknownFloorAlsoWithoutABackend) {
  EXPECT_EQ(code_when_made({}, {.min_isolation = kUnknownRung}), "InvalidArgument");
  EXPECT_EQ(code_when_made({}, {.min_isolation = static_cast<Isolation>(7)}), "InvalidArgument");
  EXPECT_EQ(code_when_made({}, {.min_isolation = static_cast<Isolation>(6)}), "nothing");
}

TEST(RouterConstruction, RefusesUnknownDenialsAlsoWithoutABackend) {
  EXPECT_EQ(code_when_made({}, {.denied_capabilities = {static_cast<Capability>(9)}}),
            "InvalidArgument");
  EXPECT_EQ(code_when_made({}, {.denied_capabilities = {static_cast<Capability>(8)}}), "nothing");
  EXPECT_EQ(code_when_made({}, {.denied_identities = {static_cast<Identity>(2)}}),
            "InvalidArgument");
  EXPECT_EQ(code_when_made({}, {.denied_identities = {static_cast<Identity>(1)}}), "nothing");
}

TEST(RouterConstruction, RefusesASelectedBackendBesideTheFirstThatCanServe) {
  EXPECT_EQ(code_when_made({backend_at("a", Isolation::vm)},
                           {.selected = "a", .selection = Selection::first_that_can_serve}),
            "InvalidArgument");
}

TEST(RouterConstruction, NamesTheEarliestFault) {
  const auto message = [](Backends backends, RouterOptions options) {
    return refusal_of([&] { SandboxRouter(std::move(backends), std::move(options)); })->message;
  };
  RouterOptions options{.min_isolation = kUnknownRung,
                        .selected = "absent",
                        .denied_capabilities = {static_cast<Capability>(9)},
                        .denied_identities = {static_cast<Identity>(2)},
                        .selection = Selection::first_that_can_serve};
  EXPECT_THAT(message({nullptr}, options), HasSubstr("a backend is null"));
  const Backends weak{backend_at("weak", Isolation::process)};
  EXPECT_THAT(message(weak, options), HasSubstr("min_isolation"));
  options.min_isolation = Isolation::vm;
  EXPECT_THAT(message(weak, options), HasSubstr("denied_capabilities"));
  options.denied_capabilities.clear();
  EXPECT_THAT(message(weak, options), HasSubstr("denied_identities"));
  options.denied_identities.clear();
  EXPECT_THAT(message(weak, options), HasSubstr("as well"));
  options.selection = Selection::configured;
  EXPECT_THAT(message(weak, options), HasSubstr("no backend is named 'absent'"));
  options.selected = "weak";
  EXPECT_THAT(message(weak, options), HasSubstr("below this host's floor"));
}

TEST(RouterConstruction, WithoutABackendIsDisabledAndChecksNothingElse) {
  const SandboxRouter router({}, {.selected = "absent"});
  EXPECT_FALSE(router.enabled());
  EXPECT_EQ(router.backend(), nullptr);
  EXPECT_EQ(router.backend_for(plain_spec()), nullptr);
  EXPECT_TRUE(router.limits_not_held(plain_spec()).empty());
}

TEST(RouterConstruction, TakesTheFirstRegisteredUnlessOneIsSelected) {
  const auto first = backend_at("first", Isolation::vm);
  const auto second = backend_at("second", Isolation::vm);
  const auto second_again = backend_at("second", Isolation::vm);
  EXPECT_EQ(SandboxRouter({first, second}).backend(), first);
  EXPECT_EQ(SandboxRouter({first, second}, {.selected = "second"}).backend(), second);
  EXPECT_EQ(SandboxRouter({second, second_again}, {.selected = "second"}).backend(), second);
  EXPECT_TRUE(SandboxRouter({first}).enabled());
}

TEST(RouterConstruction, NamesTheRegisteredBackendsInOrderWhenTheSelectedIsAbsent) {
  const auto refused = refusal_of([] {
    SandboxRouter({backend_at("b", Isolation::vm), backend_at("a", Isolation::vm)},
                  {.selected = "c"});
  });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, "NoSandboxBackend");
  EXPECT_THAT(refused->message, HasSubstr("'c'"));
  EXPECT_THAT(refused->message, HasSubstr("'a', 'b'"));
}

TEST(RouterConstruction, RefusesABackendBelowTheFloorAndTakesOneAtIt) {
  for (int declared = 0; declared <= 6; ++declared) {
    for (int floor = 0; floor <= 6; ++floor) {
      EXPECT_EQ(code_when_made({backend_at("b", static_cast<Isolation>(declared))},
                               {.min_isolation = static_cast<Isolation>(floor)}),
                declared >= floor ? "nothing" : "SandboxBackendNotPermitted")
          << declared << " under floor " << floor;
    }
  }
}

TEST(RouterConstruction, HasTheFloorMicrovmUnlessTold) {
  EXPECT_EQ(code_when_made({backend_at("b", Isolation::hardened_container)}),
            "SandboxBackendNotPermitted");
  EXPECT_EQ(code_when_made({backend_at("b", Isolation::microvm)}), "nothing");
}

TEST(RouterConstruction, RefusesAnUnsetOrUnknownRungAtAnyFloor) {
  for (const std::optional<Isolation> rung :
       {std::optional<Isolation>(), std::optional(static_cast<Isolation>(7)),
        std::optional(kUnknownRung)}) {
    EXPECT_EQ(code_when_made({backend_at("b", rung)}, {.min_isolation = Isolation::process}),
              "SandboxBackendNotPermitted");
  }
}

TEST(RouterConstruction, ChecksOnlyTheSelectedBackend) {
  const auto weak = backend_at("weak", Isolation::process);
  const auto unset = backend_at("unset", std::nullopt);
  const auto strong = backend_at("strong", Isolation::vm);
  EXPECT_EQ(code_when_made({strong, weak, unset}), "nothing");
  EXPECT_EQ(code_when_made({weak, unset, strong}, {.selected = "strong"}), "nothing");
  // Nor is a stronger one put in its place.
  EXPECT_EQ(code_when_made({strong, weak}, {.selected = "weak"}), "SandboxBackendNotPermitted");
  EXPECT_EQ(code_when_made({weak, strong}), "SandboxBackendNotPermitted");
}

TEST(RouterConstruction, ForTheFirstThatCanServeNeedsOneAtTheFloor) {
  const RouterOptions first{.selection = Selection::first_that_can_serve};
  const auto weak = backend_at("weak", Isolation::process);
  const auto unset = backend_at("unset", std::nullopt);
  EXPECT_EQ(code_when_made({weak, unset, backend_at("strong", Isolation::vm)}, first), "nothing");
  const auto refused = refusal_of([&] { SandboxRouter({weak, unset}, first); });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, "SandboxBackendNotPermitted");
  EXPECT_THAT(refused->message, HasSubstr("'weak'"));
  EXPECT_THAT(refused->message, HasSubstr("'unset'"));
}

}  // namespace
}  // namespace casemate
