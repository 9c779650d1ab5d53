#pragma once

// JSON as strangers send it: strict, bounded, never rounded. The values are Boost.JSON's; include
// <boost/json.hpp> where they are looked into, which need not be in a header.

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace casemate {

// Text is no JSON that we accept, or a value cannot be written as JSON. The message says what is
// wrong and where ("at byte 17"); it never repeats the text.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct JsonBounds {
  // Of the text. At the bound passes.
  std::size_t max_bytes = 8 * 1024 * 1024;
  // Arrays and objects inside one another; `[]` has depth 1. At the bound passes.
  std::size_t max_depth = 64;
  // Of the text, as `json_values_at_most` counts them. At the bound passes.
  std::size_t max_values = 256 * 1024;
};

// What one value takes at most in memory beside the bytes of its text: 2 bytes of text can make
// one. Measured with arrays in one another (97 bytes with the allocator's own).
inline constexpr std::size_t kJsonValueBytes = 96;

// The most values that `parse_json` can make of `text`: itself, what stands in arrays, members.
// Looks at the text once and holds nothing.
std::size_t json_values_at_most(std::string_view text) noexcept;

// Exactly one JSON value (RFC 8259), with white space around it. Throws `JsonError` for anything
// else: text, depth or values over the bounds, invalid UTF-8, a lone surrogate, a byte order mark,
// a key twice in one object, an integer outside 64 bits (signed or unsigned), a number that
// overflows, NaN, infinities, comments, trailing commas.
boost::json::value parse_json(std::string_view text, const JsonBounds& bounds = {});

// Compact text on one line, always valid UTF-8: invalid parts of strings and keys become U+FFFD.
// Throws `JsonError` for NaN and infinities, which JSON cannot hold, and for what is nested deeper
// than `parse_json` would read.
std::string serialise_json(const boost::json::value& value);

// Ends a value that may be nested to any depth; its own destructor would go as deep on the stack.
void discard_json(boost::json::value value);

}  // namespace casemate
