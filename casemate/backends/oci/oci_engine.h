#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "casemate/backends/oci/runtime.h"
#include "casemate/local/engine.h"

namespace casemate::oci {

// An OCI runtime as the engine of a local backend. Thread-safe.
class OciEngine final : public local::Engine {
 public:
  // `setting` as in `OciBackendOptions::runtime`, `search` as in PATH; `state_dir` is absolute.
  OciEngine(std::string setting, std::string search, std::string state_dir,
            std::chrono::seconds start_patience);

  std::string name() const override;
  BackendDeclarations declare(const local::ControlGroupLayout& layout) const override;
  std::string text() const override;
  void check_available() const override;
  void get_ready(const CallControl& control) const override;
  bool shares_kernel() const override;
  // What a runtime leaves is told from what another starts by there being one at a time.
  bool starts_side_by_side() const override { return false; }
  std::chrono::seconds keeper_silence() const override;
  std::string build() const override;
  std::vector<std::string> keeper_arguments() const override;
  bool remove_rest(const std::string& id) noexcept override;
  std::vector<std::string> ids_of_rest() const noexcept override;

 private:
  Runtime runtime(const CallControl& control = {}) const;
  // Whether the runtime is one that brings a kernel of its own; false where none can be had.
  bool encloses() const noexcept;
  bool is_worth_asking() const;
  std::string records() const { return state_dir_ + "/runtime"; }

  const std::string setting_;
  const std::string search_;
  const std::string state_dir_;
  const std::chrono::seconds start_patience_;
  mutable std::timed_mutex mutex_;
  // Of the file with that mark, when it was asked last.
  mutable std::optional<Runtime> asked_;
  mutable std::string mark_;
};

}  // namespace casemate::oci
