#pragma once

#include <string>
#include <string_view>

namespace casemate::guest {

// What an OCI runtime keeps of the container of a sandbox, beside the bundle.

// The control group that a runtime is told to make where it makes one: below the root of each
// hierarchy. Nothing is bounded in it.
std::string runtime_group(std::string_view id);

// Removes it, without the runtime, whose own `delete` does no more: the record in its state
// directory, that group, and the one that runc makes for an ordinary user by its own choice, which
// is called as the sandbox. All processes have ended. Quiet where there is nothing. False when
// something stayed.
bool remove_runtime_rest(const std::string& state_directory, const std::string& id) noexcept;

}  // namespace casemate::guest
