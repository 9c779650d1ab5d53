#include "apps/casemate/try_backend.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "apps/casemate/console.h"
#include "casemate/base/utf8.h"

namespace casemate::app {

namespace {

using conformance::ProbeResult;
using conformance::Report;
using conformance::Status;

// Wider than the longest id.
constexpr int kProbeColumn = 60;

std::string line_of(const ProbeResult& result) {
  std::string text = fmt::format("{:<8}{:<14}{:<{}}", to_string(result.status),
                                 to_string(result.suite), result.probe, kProbeColumn);
  if (result.status == Status::skipped) return text + result.reason + '\n';
  text += result.sentence + '\n';
  if (result.status == Status::failed) {
    text += fmt::format("        {}\n        expected  {}\n        seen      {}\n", result.reason,
                        result.expected, result.seen);
  }
  return text;
}

// The backend's sandboxes, from that image.
class ImageSubject final : public conformance::Subject {
 public:
  ImageSubject(std::shared_ptr<SandboxBackend> backend, std::optional<std::string> image)
      : Subject(std::move(backend)), image_(std::move(image)) {}
  SandboxSpec spec() const override {
    SandboxSpec spec = Subject::spec();
    if (image_) spec.image = image_;
    return spec;
  }

 private:
  std::optional<std::string> image_;
};

}  // namespace

int try_backend(std::shared_ptr<SandboxBackend> backend, conformance::ConformanceOptions options,
                OutputFormat format, const std::optional<std::string>& image) {
  if (format == OutputFormat::streams) {
    options.on_result = [](const ProbeResult& result) { write_all(1, line_of(result)); };
  }
  ImageSubject subject(std::move(backend), image);
  const Report report = run_conformance(subject, options);
  if (format == OutputFormat::json) {
    write_all(1, to_json(report) + '\n');
  } else {
    write_all(1, fmt::format("{}: {} passed, {} failed, {} skipped\n",
                             escape_for_display(report.backend), report.count(Status::passed),
                             report.count(Status::failed), report.count(Status::skipped)));
  }
  return report.passed() ? 0 : 1;
}

}  // namespace casemate::app
