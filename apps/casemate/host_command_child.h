#pragma once

namespace casemate::app {

// What the guardian of one host command is given: descriptors above 2 and a command that stay valid
// in the copy of this process in which it runs.
struct HostCommandSetting {
  const char* command;
  int input;
  int output;
  int errors;
  // Reads the end when the host has gone or does not want the command any more.
  int host;
};

// The guardian and its watcher: copies of this process, made by forks, of which one starts the
// command in a group of its own and ends as it ends, after all that the command started, and the
// other does so for it when it is killed; each sees when the other is. Runs in the child of a fork.
// Async-signal-safe: other threads of the host may have held any lock when the copy was made.
[[noreturn]] void guard_host_command(const HostCommandSetting& setting) noexcept;

}  // namespace casemate::app
