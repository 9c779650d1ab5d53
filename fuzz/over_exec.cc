// A host-tool call as a file that a guest wrote, and the answer to it.

#include <boost/json.hpp>
#include <string>
#include <variant>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/host_tools/over_exec_request.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {

namespace {

bool is_object(std::string_view bytes) {
  try {
    return parse_json(bytes, {.max_bytes = bytes.size()}).is_object();
  } catch (const JsonError&) {
    return false;
  }
}

}  // namespace

void fuzz_over_exec(std::string_view bytes) {
  const OverExecMessage message = read_over_exec_request(bytes);
  if (const auto* request = std::get_if<OverExecRequest>(&message)) {
    parse_json(request->arguments, {.max_bytes = request->arguments.size()});
    require(is_valid_utf8(request->name), "a tool's name is text");
    require(request->name.size() <= bytes.size() + 16, "nothing grows");
    // Numbers may get longer in their canonical spelling, by a constant each.
    require(request->arguments.size() <= 32 * bytes.size() + 16,
            "arguments are bounded by the file");
  } else if (const auto* refusal = std::get_if<HostToolAnswer>(&message)) {
    require(!is_object(bytes), "an object is taken apart");
    require(!refusal->ok(), "what cannot be taken apart is refused");
    require(refusal->text().starts_with("Error: ") && is_valid_utf8(refusal->text()),
            "a refusal is a sentence");
    require(refusal->text().size() < 2048, "a refusal is bounded");
  }
  // The text of a refusal may quote anything.
  const std::string refused =
      over_exec_response(HostToolAnswer::refused(replace_invalid_utf8(bytes)));
  const boost::json::value response = parse_json(refused, {.max_bytes = refused.size()});
  require(response.as_object().size() == 1 && response.as_object().contains("refusal"),
          "an answer is one object with one member");
}

}  // namespace casemate::fuzz
