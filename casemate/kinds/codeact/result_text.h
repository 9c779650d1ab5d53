#pragma once

// What a model reads about a run. For kinds/codeact/ alone.

#include <string>

#include "casemate/kinds/codeact/run.h"

namespace casemate::codeact {

// Sections in this order, one blank line between them, each left out when empty: `stdout:` and
// `stderr:` with the stream on the lines below (trailing newlines gone, invalid UTF-8 as U+FFFD,
// and where bytes are missing a line that counts them), `exit code: N` unless 0, `note:` lines,
// what was saved, what was named and not written, why collecting failed. A run with nothing to say
// says that nothing was printed. Valid UTF-8; names no host path.
std::string result_text(const CodeactRun& run);

}  // namespace casemate::codeact
