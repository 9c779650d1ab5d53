#include "casemate/kinds/codeact/run_json.h"

#include <boost/json.hpp>
#include <cmath>
#include <string_view>
#include <utility>

#include "casemate/base/base64.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/capture.h"
#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/shown_streams.h"
#include "casemate/tool/refusals.h"

namespace casemate {
namespace {

namespace json = boost::json;

// Whole microseconds: more digits would claim more than the clock knows.
double milliseconds(std::chrono::nanoseconds time) {
  return std::round(static_cast<double>(time.count()) / 1e3) / 1e3;
}

json::value or_null(const std::optional<std::string>& text) {
  return text ? json::value(*text) : json::value(nullptr);
}

void add_streams(json::object& object, const CodeactRun& run) {
  const auto [out, err] = codeact::shown_streams(run);
  object["stdout"] = render_stream(out);
  object["stderr"] = render_stream(err);
  object["stdout_truncated_bytes"] = out.missing_bytes;
  object["stderr_truncated_bytes"] = err.missing_bytes;
  if (!is_valid_utf8(out.bytes)) object["stdout_base64"] = encode_base64(out.bytes);
  if (!is_valid_utf8(err.bytes)) object["stderr_base64"] = encode_base64(err.bytes);
}

json::value sandbox_json(const SandboxInfo& sandbox) {
  return {
      {"id", sandbox.id},
      {"backend", sandbox.backend},
      {"isolation", to_string(sandbox.isolation)},
      {"reused", sandbox.reused},
      {"image", sandbox.image},
      {"egress", to_string(sandbox.egress)},
  };
}

json::value error_json(std::string_view code, std::string_view message, std::string_view hint) {
  return {{"code", code}, {"message", message}, {"hint", hint}};
}

// Why is for the operator: it may name addresses of a network that no model has to know.
json::array egress_json(const std::vector<EgressRecord>& records, ArtifactPaths paths) {
  json::array list;
  for (const EgressRecord& record : records) {
    list.push_back({{"host", record.host},
                    {"port", record.port},
                    {"decision", to_string(record.decision)},
                    {"reason", paths == ArtifactPaths::shown ? record.reason : ""},
                    {"bytes_out", record.bytes_out},
                    {"bytes_in", record.bytes_in}});
  }
  return list;
}

const CodeactRun* carried_run(const std::exception& failure) {
  return dynamic_cast<const CodeactRun*>(&failure);
}

std::string failure_json(const std::exception& failure, const CodeactRun* run, json::value error) {
  json::object object;
  object["status"] = failure_status(failure);
  if (run != nullptr) {
    add_streams(object, *run);
    object["sandbox"] = sandbox_json(run->sandbox);
  }
  object["error"] = std::move(error);
  return serialise_json(object);
}

}  // namespace

std::string codeact_run_json(const CodeactRun& run, ArtifactPaths paths) {
  const ExecResult& result = run.result;
  json::object object;
  object["status"] = to_string(result.outcome);
  object["exit_code"] = result.exit_code ? json::value(*result.exit_code) : json::value(nullptr);
  object["signal"] = or_null(result.signal);
  add_streams(object, run);
  json::array artifacts;
  for (const LandedArtifact& artifact : run.artifacts) {
    json::object entry{{"name", artifact.name}, {"bytes", artifact.bytes}};
    if (paths == ArtifactPaths::shown) entry["path"] = or_null(artifact.handle);
    artifacts.push_back(std::move(entry));
  }
  object["artifacts"] = std::move(artifacts);
  object["missing_outputs"] = json::array(run.missing_outputs.begin(), run.missing_outputs.end());
  object["host_tool_calls"] = run.host_tool_calls;
  object["limit"] = result.limit ? json::value(to_string(*result.limit)) : json::value(nullptr);
  json::array not_held;
  for (const Limit limit : run.sandbox.limits_not_held) not_held.emplace_back(to_string(limit));
  object["limits_not_held"] = std::move(not_held);
  object["egress"] = egress_json(run.egress, paths);
  object["sandbox"] = sandbox_json(run.sandbox);
  object["timing_ms"] = {
      {"acquire", milliseconds(run.timings.acquire)},
      {"stage", milliseconds(run.timings.stage)},
      {"run", milliseconds(run.timings.run)},
      {"collect", milliseconds(run.timings.collect)},
      {"total", milliseconds(run.timings.total)},
  };
  object["cpu_ms"] = milliseconds(result.cpu);
  object["peak_memory_bytes"] = result.peak_memory;
  if (!run.collect_error) {
    object["error"] = nullptr;
  } else if (paths == ArtifactPaths::shown) {
    object["error"] =
        error_json(run.collect_error->code, run.collect_error->message, run.collect_error->hint);
  } else {
    object["error"] =
        error_json(run.collect_error->code, without_error_prefix(run.collect_error->sentence), "");
  }
  return serialise_json(object);
}

std::string codeact_failure_json(const std::exception& failure, const CodeactRun* lost) {
  const auto* refusal = dynamic_cast<const SandboxError*>(&failure);
  return failure_json(failure, lost != nullptr ? lost : carried_run(failure),
                      error_json(failure_code(failure), failure.what(),
                                 refusal == nullptr ? std::string_view() : refusal->hint()));
}

std::string codeact_lost_run_json(const std::exception& failure, std::string_view message) {
  return failure_json(failure, carried_run(failure),
                      error_json(failure_code(failure), message, ""));
}

}  // namespace casemate
