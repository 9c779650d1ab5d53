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
};

// Exactly one JSON value (RFC 8259), with white space around it. Throws `JsonError` for anything
// else: text or depth over the bounds, invalid UTF-8, a lone surrogate, a byte order mark, a key
// twice in one object, an integer outside 64 bits (signed or unsigned), a number that overflows,
// NaN, infinities, comments, trailing commas.
boost::json::value parse_json(std::string_view text, const JsonBounds& bounds = {});

// Compact text on one line, always valid UTF-8: invalid parts of strings and keys become U+FFFD.
// Throws `JsonError` for NaN and infinities, which JSON cannot hold.
std::string serialise_json(const boost::json::value& value);

}  // namespace casemate
