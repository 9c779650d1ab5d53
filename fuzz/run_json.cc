// What a hostile program printed, as the JSON of a run and as the text for a model: always text,
// always bounded, always one object.

#include "casemate/kinds/codeact/run_json.h"

#include <algorithm>
#include <boost/json.hpp>
#include <string>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/kinds/codeact/result_text.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {

void fuzz_run_json(std::string_view bytes) {
  Input input(bytes);
  CodeactRun run;
  const unsigned missing = input.byte();
  run.capture_bytes = 1 + input.byte();
  run.result.exit_code = static_cast<int>(input.byte());
  // What the exec kept is within the cap, as its contract has it.
  run.result.stdout = std::string(input.until('\0').substr(0, run.capture_bytes));
  run.result.stderr = std::string(input.rest().substr(0, run.capture_bytes));
  if ((missing & 1) != 0) {
    run.result.stdout_missing_bytes = missing;
    run.result.stdout_cut_at = std::min<std::uint64_t>(missing, run.result.stdout.size());
  }
  if ((missing & 2) != 0) {
    run.result.stderr_missing_bytes = missing;
    run.result.stderr_cut_at = run.result.stderr.size() / 2;
  }
  const std::string text = codeact_run_json(run, ArtifactPaths::hidden);
  require(is_valid_utf8(text) && text.find('\n') == std::string::npos, "a run is one line of text");
  const boost::json::object object = parse_json(text).as_object();
  for (const char* stream : {"stdout", "stderr"}) {
    const std::string_view shown = object.at(stream).as_string();
    require(is_valid_utf8(shown), "a stream is text");
    require(shown.size() <= run.capture_bytes + 128, "a stream is within its cap and one line");
  }
  const bool text_only = is_valid_utf8(run.result.stdout);
  require(!text_only || !object.contains("stdout_base64"), "text does not come as base64");
  // Where it had to be cut, what is no text may be what was cut away.
  require(text_only || object.at("stdout_truncated_bytes") != 0 || object.contains("stdout_base64"),
          "bytes that are no text come as base64 too");
  const std::string read = codeact::result_text(run);
  require(is_valid_utf8(read) && read.size() <= 2 * run.capture_bytes + 1024,
          "what a model reads is bounded text");
}

}  // namespace casemate::fuzz
