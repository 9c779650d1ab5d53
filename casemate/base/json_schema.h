#pragma once

// JSON Schema 2020-12: the part that arguments of tools need, held in full or refused.
//
// Assertions: type (one or a list), enum, const; properties, required, additionalProperties,
// minProperties, maxProperties; items, prefixItems, minItems, maxItems, uniqueItems; minimum,
// maximum, exclusiveMinimum, exclusiveMaximum, multipleOf (a positive integer); minLength,
// maxLength (code points); allOf, anyOf, oneOf, not; $ref within the document (`#`, `#/$defs/NAME`,
// any other schema's JSON pointer) and $defs; true and false as schemas. For the reader only:
// title, description, default, examples, deprecated, readOnly, writeOnly, $comment, $schema
// (2020-12 only), $id at the root. Any other keyword is refused when the schema is read, `pattern`
// and `format` among them: an assertion that is not held would be believed. As the standard has
// it, 1.0 is an integer and equals 1, and an assertion about one type lets every other type pass.

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace casemate {

// A text is no schema that can be held. The message names the place and the keyword.
class JsonSchemaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where and how a value does not fit. Repeats keys (escaped and cut), never values.
struct JsonMismatch {
  enum class Kind : std::uint8_t { wrong_value, unknown_property, missing_property, too_costly };

  Kind kind = Kind::wrong_value;
  // "files[1]", "deep.n"; empty for the value itself.
  std::string path{};
  // What is said of it ("must be a string, not a number"); for `unknown_property` the properties
  // that there are, and empty for `missing_property`.
  std::string what{};

  // One sentence with a full stop, where `noun` is "parameter" or "argument":
  // "parameter 'files[1]' must be a string, not a number."
  std::string sentence(std::string_view noun) const;
};

// Immutable; copies share. Safe from several threads.
class JsonSchema {
 public:
  // The longest schema text; the most schemas in one.
  static constexpr std::size_t kMaxBytes = 1024 * 1024;
  static constexpr std::size_t kMaxSchemas = 10'000;
  // Schemas that apply to one value by way of another (allOf in $ref in anyOf ...).
  static constexpr int kMaxStacked = 32;
  // A check takes so many steps at most (values looked at, once for each schema), well under a
  // second: some schemas take time exponential in a value's depth.
  static constexpr std::uint64_t kMaxSteps = 8 * 1024 * 1024;

  // Throws `JsonSchemaError`: no JSON, too long or too many, a keyword that is unknown or
  // malformed, a $ref that leads nowhere or, without going into the value, back to itself.
  static JsonSchema parse(std::string_view text);

  // The first thing that does not fit, or nothing. The value's depth is its reader's to bound
  // (json.h: 64).
  std::optional<JsonMismatch> check(const boost::json::value& value) const;

  // The schema as given.
  const std::string& text() const;

  struct Compiled;

 private:
  explicit JsonSchema(std::shared_ptr<const Compiled> compiled);

  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace casemate
