#include "casemate/conformance/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "casemate/base/json.h"

namespace casemate::conformance {
namespace {

boost::json::value text_or_null(const std::string& text) {
  if (text.empty()) return nullptr;
  return boost::json::value(text);
}

}  // namespace

std::string_view to_string(Status status) {
  switch (status) {
    case Status::passed:
      return "passed";
    case Status::failed:
      return "failed";
    case Status::skipped:
      return "skipped";
  }
  return "unknown";
}

std::size_t Report::count(Status status) const {
  return static_cast<std::size_t>(std::ranges::count(results, status, &ProbeResult::status));
}

bool Report::passed() const { return count(Status::failed) == 0 && count(Status::passed) > 0; }

std::string Report::failures() const {
  std::string text;
  for (const ProbeResult& result : results) {
    if (result.status != Status::failed) continue;
    text += fmt::format("{} {}: {}\n  {}\n  expected {}\n  seen     {}\n", to_string(result.suite),
                        result.probe, result.sentence, result.reason, result.expected, result.seen);
  }
  return text;
}

std::string to_json(const Report& report) {
  boost::json::array records;
  for (const ProbeResult& result : report.results) {
    records.push_back({{"probe", result.probe},
                       {"suite", to_string(result.suite)},
                       {"sentence", result.sentence},
                       {"status", to_string(result.status)},
                       {"expected", text_or_null(result.expected)},
                       {"seen", text_or_null(result.seen)},
                       {"reason", text_or_null(result.reason)}});
  }
  return serialise_json(records);
}

}  // namespace casemate::conformance
