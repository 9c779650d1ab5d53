#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace casemate {

// The schema of a tool's arguments, and the check against it.
//
// Understood: type (one of object, array, string, integer, number, boolean), properties, required,
// additionalProperties (only `false`), items, minItems, maxItems; title, description and default
// are for the reader. An assertion that would not be held is refused, never ignored.
// Immutable; safe from several threads.
class ToolParameters {
 public:
  // Throws `InvalidArgument` naming the keyword: text that is no JSON object, a root that is not an
  // object without further properties, an unknown keyword.
  static ToolParameters parse(std::string_view schema);

  // The arguments as an object that fits. Throws `ModelFacingRefusal` that names the parameter and
  // what it should be: text that is no JSON object (8 MiB at most), an unknown or missing
  // parameter, a wrong type. Values are not repeated.
  boost::json::object check(std::string_view arguments) const;

  // The schema as given.
  const std::string& text() const { return text_; }

 private:
  ToolParameters(std::string text, std::shared_ptr<const boost::json::object> schema);

  std::string text_;
  std::shared_ptr<const boost::json::object> schema_;
};

}  // namespace casemate
