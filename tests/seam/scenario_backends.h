#pragma once

// Every backend that a machine may have, each as its own program or engine would have it.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "casemate/core/backend.h"

namespace casemate::seam {

struct BackendUnderTest {
  std::string name;
  // A backend with its state below the directory, or null with the reason why there is none here.
  // `failure` where all is there and it does not work all the same.
  struct Made {
    std::shared_ptr<SandboxBackend> backend{};
    // Of the specs; absent: the backend's own.
    std::optional<std::string> image{};
    std::string missing{};
    std::string failure{};
  };
  std::function<Made(const std::filesystem::path& state)> make;
  // How much longer than elsewhere a program may take that runs into its time: what is emulated
  // takes longer to begin.
  int patience = 1;

  friend std::ostream& operator<<(std::ostream& out, const BackendUnderTest& backend) {
    return out << backend.name;
  }
};

// What the others are compared with.
inline constexpr char kReference[] = "linux";

// Runs programs as processes of this test and holds nothing: only what needs no boundary.
inline constexpr char kWithoutABoundary[] = "plain";

const std::vector<BackendUnderTest>& backends_under_test();

}  // namespace casemate::seam
