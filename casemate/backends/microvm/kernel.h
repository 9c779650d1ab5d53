#pragma once

#include <optional>
#include <string>
#include <vector>

namespace casemate::microvm {

// A kernel that machines can start, as a distribution's package has it.
struct Kernel {
  // The compressed kernel's file.
  std::string image;
  // The directory of its modules, named by its release.
  std::string modules;
  std::string release;
  friend bool operator==(const Kernel&, const Kernel&) = default;
};

// The newest kernel below `root` (boot/vmlinuz-RELEASE beside lib/modules/RELEASE, in usr/lib too)
// whose modules have what machines need; one made for clouds (Debian: linux-image-cloud-amd64)
// before others, which have more to start. Absent where there is none.
std::optional<Kernel> find_kernel(const std::string& root);

// The files of the modules that machines need, in the order in which they can be loaded: what is
// built into the kernel needs none. Throws `SandboxUnavailable` naming the module that is missing
// or compressed.
std::vector<std::string> module_files(const Kernel& kernel);

// The names that a module's file says it needs first. Throws `SandboxUnavailable` for a file that
// is no module.
std::vector<std::string> module_needs(const std::string& file, const std::string& content);

}  // namespace casemate::microvm
