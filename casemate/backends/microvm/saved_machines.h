#pragma once

// Saved machines as files, called by what they depend on.

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace casemate::microvm {

// All that is in a saved machine, or that it takes for granted.
struct SavedMachineParts {
  // `host_identity`, `program_identity` of the hypervisor.
  std::string host;
  std::string hypervisor;
  // Digests of what it was started with: kernel and first process; image.
  std::string boot;
  std::string image;
  // Of the hypervisor, at a fresh start.
  std::vector<std::string> arguments;
};

// "MAKER-IMAGE-DIGEST": whose it is is told without opening it.
std::string saved_machine_name(const SavedMachineParts& parts);
// Who can use it, whatever its image and size: this host, hypervisor, kernel and build.
std::string maker_of(const SavedMachineParts& parts);

struct SavedMachinesRule {
  std::string maker;
  // Whether there is an image of that digest.
  std::function<bool(std::string_view image)> has_image;
  std::chrono::hours unused{24 * 14};
  // Two builds may work in turn.
  std::chrono::hours unused_of_another_maker{24};
  std::size_t most = 16;
};

// Removes saved machines whose image is gone, those that nobody used for as long as the rule says,
// and of the others all but the newest `most`; never one that is being read. Never throws.
void prune_saved_machines(const std::string& directory, const SavedMachinesRule& rule) noexcept;

// Says that it was used now.
void mark_saved_machine_used(const std::string& path) noexcept;

}  // namespace casemate::microvm
