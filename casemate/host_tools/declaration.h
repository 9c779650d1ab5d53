#pragma once

// What a host function answers about itself before a program may call it.

#include <concepts>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "casemate/core/vocabulary.h"

namespace casemate {

// One answer: a value, or `std::nullopt` said aloud. It has no default, so that a declaration in
// which one was forgotten does not compile.
template <typename T>
class DeclarationLeg {
 public:
  // Implicit on purpose: `.sink = "crm"` is the notation.
  template <std::convertible_to<T> Value>
  DeclarationLeg(Value&& value) : value_(std::in_place, std::forward<Value>(value)) {}
  DeclarationLeg(std::nullopt_t) {}

  const std::optional<T>& get() const { return value_; }
  friend bool operator==(const DeclarationLeg&, const DeclarationLeg&) = default;

 private:
  std::optional<T> value_;
};

// Where a tool's answers come from, where its arguments go, and in whose name it acts.
struct HostToolDeclaration {
  // How far what it returns may be trusted; `nullopt`: it returns nothing of anybody's.
  DeclarationLeg<SourceIntegrity> source;
  // The host's label for the most confidential data that may leave by its arguments, kept verbatim;
  // `nullopt`: it carries nothing out.
  DeclarationLeg<std::string> sink;
  // `nullopt`: it uses no authority at all. `user` can be declared and is never served.
  DeclarationLeg<Identity> identity;
  friend bool operator==(const HostToolDeclaration&, const HostToolDeclaration&) = default;
};

// Throws `InvalidArgument` for a source or identity cast from outside the enumeration.
void check_declaration(const HostToolDeclaration& declaration);

// What all tools of a registry mean together. A tool without a declaration counts as acting for the
// application, untrusted, and carrying something out.
struct HostToolAggregate {
  // The weakest source; absent when no tool has one.
  std::optional<SourceIntegrity> result_integrity{};
  // Every sink, verbatim.
  std::set<std::string> outbound_caps{};
  std::set<Identity> identities{};
  // A tool acts in a user's name: a person has to agree.
  bool requires_approval = false;
  bool has_undeclared = false;
  friend bool operator==(const HostToolAggregate&, const HostToolAggregate&) = default;
};

}  // namespace casemate
