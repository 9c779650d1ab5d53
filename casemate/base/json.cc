#include "casemate/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"

namespace casemate {
namespace {

namespace json = boost::json;
using ErrorCode = boost::system::error_code;
using Text = json::string_view;

// Receives what the parser reads and builds the value. Boost's own builder keeps the last of two
// equal keys and turns an integer that is too large into a rounded double; this one refuses both.
// A callback that returns false sets the error code and ends the parse.
class Builder {
 public:
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

  json::value take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool on_document_begin(ErrorCode&) { return true; }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_object_begin(ErrorCode&) { return open(json::object()); }
  bool on_object_end(std::size_t, ErrorCode&) { return close(); }
  bool on_array_begin(ErrorCode&) { return open(json::array()); }
  bool on_array_end(std::size_t, ErrorCode&) { return close(); }

  bool on_key_part(Text part, std::size_t, ErrorCode&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(Text part, std::size_t, ErrorCode& error) {
    std::string key = take_text(part);
    Level& level = levels_.back();
    if (level.container.get_object().contains(key)) {
      return refuse("a key stands twice in one object", error);
    }
    level.key = std::move(key);
    return true;
  }
  bool on_string_part(Text part, std::size_t, ErrorCode&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(Text part, std::size_t, ErrorCode&) { return add(json::string(take_text(part))); }
  bool on_number_part(Text part, ErrorCode&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t number, Text, ErrorCode&) {
    text_.clear();
    return add(number);
  }
  bool on_uint64(std::uint64_t number, Text, ErrorCode&) {
    text_.clear();
    return add(number);
  }
  bool on_double(double approximate, Text part, ErrorCode& error) {
    const std::string digits = take_text(part);
    if (digits.find_first_of(".eE") == std::string::npos) {
      return refuse("an integer is outside 64 bits", error);
    }
    // The parser's own conversion may be off by one in the last place.
    double exact = approximate;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), exact);
    if (status == std::errc::result_out_of_range) {
      if (std::fabs(approximate) >= 1) {
        return refuse("a number overflows", error);
      }
      exact = std::copysign(0.0, approximate);
    }
    if (!std::isfinite(exact)) {
      return refuse("a number overflows", error);
    }
    return add(exact);
  }
  bool on_bool(bool value, ErrorCode&) { return add(value); }
  bool on_null(ErrorCode&) { return add(nullptr); }
  bool on_comment_part(Text, ErrorCode&) { return true; }
  bool on_comment(Text, ErrorCode&) { return true; }

 private:
  struct Level {
    json::value container;
    std::string key;  // of the member that comes next
  };

  std::string take_text(Text last_part) {
    std::string whole = std::move(text_);
    text_.clear();
    whole.append(last_part.data(), last_part.size());
    return whole;
  }

  bool open(json::value container) {
    levels_.push_back({std::move(container), {}});
    return true;
  }

  bool close() {
    json::value done = std::move(levels_.back().container);
    levels_.pop_back();
    return add(std::move(done));
  }

  bool add(json::value value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (json::array* array = levels_.back().container.if_array()) {
      array->push_back(std::move(value));
    } else {
      levels_.back().container.get_object().emplace(levels_.back().key, std::move(value));
    }
    return true;
  }

  bool refuse(std::string problem, ErrorCode& error) {
    problem_ = std::move(problem);
    error = make_error_code(boost::system::errc::invalid_argument);
    return false;
  }

  json::value root_;
  std::vector<Level> levels_;
  std::string text_;
  std::string problem_;
};

void write_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char character : replace_invalid_utf8(text)) {
    switch (character) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(character) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(character));
        } else {
          out += character;
        }
    }
  }
  out += '"';
}

// The shortest text that reads back as the same double, and as a double.
void write_double(std::string& out, double number) {
  if (!std::isfinite(number)) {
    throw JsonError("a number is not finite; JSON cannot hold it");
  }
  char buffer[32];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) {
    out += ".0";
  }
}

void write_value(std::string& out, const json::value& value, std::size_t depth) {
  if (value.is_structured() && depth == 0) {
    throw JsonError(fmt::format("a value is nested over {} deep", JsonBounds().max_depth));
  }
  switch (value.kind()) {
    case json::kind::null:
      out += "null";
      break;
    case json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      break;
    case json::kind::int64:
      out += std::to_string(value.get_int64());
      break;
    case json::kind::uint64:
      out += std::to_string(value.get_uint64());
      break;
    case json::kind::double_:
      write_double(out, value.get_double());
      break;
    case json::kind::string:
      write_string(out, std::string_view(value.get_string()));
      break;
    case json::kind::array: {
      std::string_view separator = "[";
      for (const json::value& element : value.get_array()) {
        out += std::exchange(separator, ",");
        write_value(out, element, depth - 1);
      }
      out += value.get_array().empty() ? "[]" : "]";
      break;
    }
    case json::kind::object: {
      std::string_view separator = "{";
      for (const json::key_value_pair& member : value.get_object()) {
        out += std::exchange(separator, ",");
        write_string(out, std::string_view(member.key()));
        out += ':';
        write_value(out, member.value(), depth - 1);
      }
      out += value.get_object().empty() ? "{}" : "}";
      break;
    }
  }
}

}  // namespace

std::size_t json_values_at_most(std::string_view text) noexcept {
  std::size_t values = 1;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char character = text[at];
    if (character == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (character == '\\') ++at;
    } else if (character == ',' || character == '[' || character == '{') {
      ++values;
    }
  }
  return values;
}

json::value parse_json(std::string_view text, const JsonBounds& bounds) {
  if (text.size() > bounds.max_bytes) {
    throw JsonError(
        fmt::format("JSON of {} bytes is over the limit of {}", text.size(), bounds.max_bytes));
  }
  // A value has at least two bytes, the comma with it.
  if (text.size() / 2 >= bounds.max_values) {
    if (const std::size_t values = json_values_at_most(text); values > bounds.max_values) {
      throw JsonError(
          fmt::format("JSON of {} values is over the limit of {}", values, bounds.max_values));
    }
  }
  json::parse_options options;
  options.max_depth = bounds.max_depth;
  json::basic_parser<Builder> parser(options);
  ErrorCode error;
  std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (error) {
    const std::string& problem = parser.handler().problem();
    throw JsonError(fmt::format("malformed JSON at byte {}: {}", used,
                                problem.empty() ? error.message() : problem));
  }
  used = std::min(text.find_first_not_of(" \t\r\n", used), text.size());
  if (used != text.size()) {
    throw JsonError(fmt::format("malformed JSON at byte {}: something follows the value", used));
  }
  return parser.handler().take();
}

std::string serialise_json(const json::value& value) {
  std::string out;
  write_value(out, value, JsonBounds().max_depth);
  return out;
}

void discard_json(json::value value) {
  std::vector<json::value> rest;
  rest.push_back(std::move(value));
  const auto take = [&](json::value& each) {
    if (each.is_structured()) rest.push_back(std::move(each));
  };
  while (!rest.empty()) {
    json::value outer = std::move(rest.back());
    rest.pop_back();
    if (json::array* array = outer.if_array()) {
      for (json::value& each : *array) take(each);
    } else if (json::object* object = outer.if_object()) {
      for (json::key_value_pair& each : *object) take(each.value());
    }
  }
}

}  // namespace casemate
