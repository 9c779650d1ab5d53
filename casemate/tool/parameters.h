#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

#include "casemate/base/json_schema.h"

namespace casemate {

// The schema of a tool's arguments, and the check against it. What json_schema.h knows; an
// assertion that would not be held is refused, never ignored. Immutable; safe from several threads.
class ToolParameters {
 public:
  // Throws `InvalidArgument` naming the place and the keyword: text that is no schema, or a root
  // that is not an object without further properties.
  static ToolParameters parse(std::string_view schema);

  // The arguments as an object that fits. Throws `ModelFacingRefusal` that names the parameter and
  // what it should be: text that is no JSON object (8 MiB at most), an unknown or missing
  // parameter, a wrong type. Values are not repeated.
  boost::json::object check(std::string_view arguments) const;

  // The schema as given.
  const std::string& text() const { return schema_.text(); }

 private:
  explicit ToolParameters(JsonSchema schema);

  JsonSchema schema_;
};

}  // namespace casemate
