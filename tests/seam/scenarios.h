#pragma once

// CodeAct as an application has it, on any backend: programs that show what a program can see and
// do, and what comes of each for the model and for the host.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "casemate/core/backend.h"
#include "casemate/core/vocabulary.h"

namespace casemate::seam {

// Which sandbox a scenario runs in; those of one kind share it, as calls of a conversation do.
enum class Wiring : std::uint8_t { plain, host_tools, cpu_seconds };

struct Scenario {
  std::string name;
  Wiring wiring = Wiring::plain;
  std::string program;
  std::vector<std::string> files{};
  std::vector<std::string> outputs{};
  std::chrono::seconds timeout{60};
  std::uint64_t capture_bytes = 64 * 1024;
  // It shows a boundary.
  bool needs_boundary = true;
  // What it uses up; runs only where a backend says that it holds that.
  std::optional<Limit> uses_up{};
};

const std::vector<Scenario>& scenarios();

// One backend, and a router that takes it whatever its rung is.
class ScenarioRunner {
 public:
  // `image` of the specs; absent: the backend's own. What lands, lands below `scratch`. A scenario
  // has `patience` times its timeout, which is told as if it had been that.
  ScenarioRunner(std::shared_ptr<SandboxBackend> backend, std::optional<std::string> image,
                 std::filesystem::path scratch, int patience);
  ScenarioRunner(const ScenarioRunner&) = delete;
  ScenarioRunner& operator=(const ScenarioRunner&) = delete;
  // Ends its sandboxes.
  ~ScenarioRunner();

  // What the model reads, what the host is told beside it, and what landed, as lines. Left out is
  // what differs from run to run: ids, times, memory.
  std::string transcript(const Scenario& scenario);
  // Microseconds from one of 200 calls to the next, the middle one; absent where the backend
  // carries no calls.
  std::optional<double> host_tool_microseconds();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace casemate::seam
