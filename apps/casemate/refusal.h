#pragma once

#include <exception>

namespace casemate::app {

enum class OutputFormat : bool { streams, json };

// `casemate: error: CODE: what; what to do` on standard error. What is not one of the library's
// refusals has the code "InternalError".
void say_error(const std::exception& failure) noexcept;

// The same, and for JSON the object of a refusal on standard output. Returns the exit status.
int report(const std::exception& failure, OutputFormat format);

}  // namespace casemate::app
