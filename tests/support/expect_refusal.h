#pragma once

// For tests: a refusal is its class, its text and its hint, and all three are looked at.

#include <gtest/gtest.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate {

// Expects that `act` throws a `Refused` (this class or one derived from it) whose message or hint
// has each of `parts` in it, and whose text is valid UTF-8. Returns "message (hint)", or nothing
// when there was no such refusal.
template <typename Refused, typename Act>
std::string expect_refusal(Act&& act, std::initializer_list<std::string_view> parts) {
  static_assert(std::is_base_of_v<SandboxError, Refused>);
  try {
    act();
  } catch (const Refused& refusal) {
    const std::string text = refusal.message() + " (" + refusal.hint() + ")";
    EXPECT_TRUE(is_valid_utf8(text)) << escape_for_display(text);
    for (const std::string_view part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
    }
    return text;
  } catch (const SandboxError& refusal) {
    ADD_FAILURE() << "refused as " << refusal.code() << ": " << refusal.message();
    return {};
  } catch (const std::exception& error) {
    ADD_FAILURE() << "no refusal but: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

template <typename Refused, typename Act>
std::string expect_refusal(Act&& act, std::string_view part = "") {
  return expect_refusal<Refused>(act, {part});
}

}  // namespace casemate
