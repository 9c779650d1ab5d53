#include "casemate/host_tools/declaration.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

TEST(HostToolDeclaration, HasNoDefaultForAnyQuestion) {
  static_assert(!std::is_default_constructible_v<DeclarationLeg<Identity>>);
  static_assert(!std::is_default_constructible_v<HostToolDeclaration>);
}

TEST(HostToolDeclaration, KeepsWhatWasAnswered) {
  const HostToolDeclaration declaration{
      .source = SourceIntegrity::trusted, .sink = "Secret ", .identity = std::nullopt};
  EXPECT_EQ(declaration.source.get(), SourceIntegrity::trusted);
  EXPECT_EQ(declaration.sink.get(), "Secret ");
  EXPECT_EQ(declaration.identity.get(), std::nullopt);
}

TEST(HostToolDeclaration, RefusesValuesCastFromOutside) {
  expect_refusal<InvalidArgument>(
      [] {
        check_declaration({.source = static_cast<SourceIntegrity>(9),
                           .sink = std::nullopt,
                           .identity = std::nullopt});
      },
      "source 9");
  expect_refusal<InvalidArgument>(
      [] {
        check_declaration(
            {.source = std::nullopt, .sink = std::nullopt, .identity = static_cast<Identity>(9)});
      },
      "identity 9");
}

}  // namespace
}  // namespace casemate
