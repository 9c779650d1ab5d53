#pragma once

// The streams of a run as every text of it shows them. For kinds/codeact/ alone.

#include "casemate/core/capture.h"
#include "casemate/kinds/codeact/run.h"

namespace casemate::codeact {

struct ShownStreams {
  CapturedStream out;
  CapturedStream err;
};

// Each fits the run's `capture_bytes` once it is rendered.
inline ShownStreams shown_streams(const CodeactRun& run) {
  const ExecResult& result = run.result;
  return {fit_rendering({result.stdout, result.stdout_missing_bytes, result.stdout_cut_at},
                        run.capture_bytes),
          fit_rendering({result.stderr, result.stderr_missing_bytes, result.stderr_cut_at},
                        run.capture_bytes)};
}

}  // namespace casemate::codeact
