#pragma once

// From a refusal to the sentence a model reads. One table; nobody else words one.

#include <exception>
#include <string>
#include <string_view>

#include "casemate/core/errors.h"

namespace casemate {

// An `InvalidArgument` whose message was written for a model: it names only what the model itself
// said or may know, never a name that was refused for traversal, a host path or provider text.
class ModelFacingRefusal : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// What a model is told, starting with "Error: ". The text of `ModelFacingRefusal` and of the output
// family is its own; every other refusal has a fixed sentence by its code, and an unknown one, or
// any other exception, that of an unavailable sandbox. Valid UTF-8.
std::string sentence_for_model(const std::exception& failure);

// Such a sentence without its "Error: ", for the member `error.message` of a structured result,
// which says already that it is one.
std::string_view without_error_prefix(std::string_view sentence);

// "refused", or "failed" where the provider failed or the exception is none of ours, or "cancelled"
// for `SandboxCancelled`: the `status` of a result without a run.
std::string_view failure_status(const std::exception& failure);

// The failure's stable code: of a `std::system_error`, which is a step that this machine refused,
// "SandboxUnavailable"; "InternalError" for everything else that is no refusal.
std::string_view failure_code(const std::exception& failure);

// What an operator's log is told: code, message and hint on one line, escaped.
std::string line_for_log(const std::exception& failure);

}  // namespace casemate
