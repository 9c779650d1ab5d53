#pragma once

#include "casemate/kinds/codeact/run.h"

namespace casemate::codeact {

// Whether the interpreter does the same with this program when it reads it from a pipe as when it
// reads it from its file, so that one that is held can run it: without arguments and input, which
// it would need to have from its start; in UTF-8 and without a line that names an encoding, for
// which it would go back in its file; and no archive, which it would look for at the file's end.
bool can_wait_for_its_file(const CodeactRequest& request);

}  // namespace casemate::codeact
