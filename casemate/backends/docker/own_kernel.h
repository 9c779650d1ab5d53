#pragma once

#include <string>
#include <string_view>

namespace casemate::docker {

// Release and version, as the guest program says them of what runs it; empty where it is not told.
std::string kernel_of_this_machine();

// Whether the process of that number on this machine is one of the container of that id, by its
// words or its control groups: an engine behind a forwarded socket has numbers of another machine.
// The id, of which 24 digits are enough, was made at random, so that nobody else has it.
bool is_process_of_container(int process, std::string_view id) noexcept;

}  // namespace casemate::docker
