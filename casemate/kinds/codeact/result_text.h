#pragma once

// What a model reads about a run. For kinds/codeact/ alone.

#include <string>
#include <string_view>

#include "casemate/kinds/codeact/run.h"

namespace casemate::codeact {

// Sections in this order, one blank line between them, each left out when empty: `stdout:` and
// `stderr:` with the stream on the lines below (trailing newlines gone, invalid UTF-8 as U+FFFD,
// and where bytes are missing a line that counts them; of each at most `run.capture_bytes`), `exit
// code: N` unless 0, `note:` lines, what was saved, what was named and not written, why collecting
// failed. A run with nothing to say says that nothing was printed. Valid UTF-8; names no host path.
std::string result_text(const CodeactRun& run);

// The same for a run whose sandbox was lost while the program ran: `sentence` (of the table in
// tool/refusals.h), then what had been printed by then, and a note that says so.
std::string lost_run_text(const CodeactRun& run, std::string_view sentence);

}  // namespace casemate::codeact
