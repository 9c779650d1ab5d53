#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace casemate::bench {

// Starts a program with /dev/null for its streams. Throws `std::runtime_error`.
pid_t start_process(const std::vector<std::string>& argv);
// Waits for its end. Throws `std::runtime_error` when it does not exit with 0.
void reap_process(pid_t pid, const std::string& name);

// Runs the program to its end and returns the milliseconds from its start until it was reaped.
// Streams are /dev/null. Throws `std::runtime_error` when it does not exit with 0.
double time_process(const std::vector<std::string>& argv);

// The first of that name on PATH; empty without one.
std::string find_program(const std::string& name);

}  // namespace casemate::bench
