#pragma once

// One run as JSON, in the command line's spelling; also the tool's `structured`.

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "casemate/kinds/codeact/run.h"

namespace casemate {

// Whether artifacts carry `path` (the sink's handle): the operator may see host paths, a model may
// not.
enum class ArtifactPaths : std::uint8_t { hidden, shown };

// The object on one line: status, exit code, signal, streams with what is missing of them (base64
// beside them where the bytes are no UTF-8), artifacts, missing outputs, limits, sandbox, timing,
// error. Always valid UTF-8 and always an object.
std::string codeact_run_json(const CodeactRun& run, ArtifactPaths paths);

// `{"status":"refused","error":{"code","message","hint"}}` for a refusal; `failed` where the
// provider failed or the exception is none of ours, `cancelled` for `SandboxCancelled`. A failure
// that carries a `CodeactRun` has the run's streams and sandbox beside them, under the keys above.
// `lost` stands in for one that a rewording of the failure does not carry.
std::string codeact_failure_json(const std::exception& failure, const CodeactRun* lost = nullptr);

// The same with another message and no hint, for readers to whom the failure's own do not go.
std::string codeact_lost_run_json(const std::exception& failure, std::string_view message);

}  // namespace casemate
