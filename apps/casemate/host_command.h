#pragma once

// A command on the host that answers one call of a program.
//
// It runs with everything its owner may do: nothing here confines it. What reaches it from a
// program is the input alone.

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

namespace casemate::app {

struct HostCommandResult {
  enum class End : std::uint8_t {
    // By itself; `status` is its exit status, 128+N for a signal.
    exited,
    // Because a stop was requested.
    stopped,
    // Because it printed more than it may.
    too_much,
  };

  End end = End::exited;
  int status = 0;
  // Standard output, at most the bytes allowed.
  std::string output;
  // The first `kKeptErrorBytes` of standard error; any bytes.
  std::string errors;
};

inline constexpr std::size_t kKeptErrorBytes = 4096;

// Runs `sh -c COMMAND` with `input` on its standard input, in this process's directory and
// environment, and waits for its end. It may leave its input unread.
//
// It has a process group of its own, without terminal, with default signals, and no descriptor but
// its three. It and all that it started is killed when the command has ended, when a stop is
// requested, when it prints more than `max_output_bytes`, and when this process ends, however that
// happens: also what left its group or session, as `timeout` and `setsid` do (on a kernel without
// PROC_CHILDREN, the group alone). Nothing of it is left unreaped, and no descriptor open.
//
// Two processes of ours see to that, each also to what the other leaves when it is killed. What
// cannot be had without a name space of its own, in which the command would not see the processes
// that its owner sees: when both are killed at once, what the command itself started stays (the
// command does not). What a command starts under another user (setuid) may not be ours to kill.
//
// May be called from several threads. SIGPIPE has to be ignored in this process, as
// `prepare_standard_streams` makes it. Throws `std::system_error` when nothing can be started.
HostCommandResult run_host_command(const std::string& command, std::string_view input,
                                   std::size_t max_output_bytes, const std::stop_token& stop);

}  // namespace casemate::app
