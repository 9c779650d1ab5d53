#pragma once

// A good backend with some of its operations replaced.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/conformance/subject.h"
#include "casemate/core/backend.h"

namespace casemate::conformance_tests {

// Each is called in the place of the good call's method, which it may call itself; empty: the good
// one. `exec` stands for start and wait of programs with their call's lifetime.
struct Faults {
  std::function<void(Call& good, const std::string& path, std::string_view bytes,
                     const std::string& directory)>
      write_file{};
  std::function<std::optional<SandboxEntry>(Call& good, const std::string& path,
                                            const std::string& directory)>
      stat_file{};
  std::function<std::string(Call& good, const std::string& path, const std::string& directory)>
      read_file{};
  std::function<void(Call& good, const std::string& path, const std::string& directory, Recursive)>
      remove{};
  std::function<std::vector<SandboxEntry>(Call& good, const std::string& path,
                                          const std::string& directory)>
      list_dir{};
  std::function<ExecResult(Call& good, const ExecRequest& request, const CallControl& control)>
      exec{};
  // In the place of `exec`.
  std::function<std::unique_ptr<Process>(Call& good, const ExecRequest& request,
                                         const CallControl& control)>
      start{};
  std::function<std::unique_ptr<Call>(Sandbox& good, const CallProfile& profile,
                                      const CallControl& control)>
      open_call{};
  // Of the backend.
  std::function<SandboxSnapshot(SandboxBackend& good, const SandboxKey& key, std::string_view kind,
                                const CallControl& control)>
      snapshot{};
  std::function<std::shared_ptr<Sandbox>(SandboxBackend& good, const SandboxKey& key,
                                         const SandboxSpec& spec, std::string_view id,
                                         const CallControl& control)>
      restore{};
  std::function<bool(SandboxBackend& good, std::string_view id)> dispose_snapshot{};
  std::function<int(SandboxBackend& good, std::string_view scope, std::string_view thread)>
      dispose_scope{};
  // Change what the good one is asked, and what it answers.
  std::function<void(SandboxSpec&)> spec{};
  std::function<void(ExecRequest&)> request{};
  std::function<void(ExecResult&)> result{};
};

std::shared_ptr<SandboxBackend> faulty_backend(std::shared_ptr<SandboxBackend> good, Faults faults);

// Arranges and looks by the good call, so that only the probes' own operations meet the faults.
class FaultySubject final : public conformance::Subject {
 public:
  using Subject::Subject;
  void plant(Call& call, std::span<const conformance::Planted> all,
             const CallControl& control) override;
  std::vector<std::optional<std::string>> look(Call& call, std::span<const std::string> paths,
                                               const CallControl& control) override;
};

}  // namespace casemate::conformance_tests
