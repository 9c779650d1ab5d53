#pragma once

// Where the files of one run lie in the guest when host tool calls travel as files.

#include <cstdint>
#include <string>
#include <string_view>

namespace casemate {

// Names in the transport's directory; a program may have none of them.
inline constexpr std::string_view kOverExecModule = "casemate_tools.py";
inline constexpr std::string_view kOverExecLauncher = "run_program.sh";
inline constexpr std::string_view kOverExecStdout = "program_stdout.txt";
inline constexpr std::string_view kOverExecStderr = "program_stderr.txt";
inline constexpr std::string_view kOverExecExitCode = "program_exit_code";
inline constexpr std::string_view kOverExecPid = "program_pid";
inline constexpr std::string_view kOverExecSession = "program_session";
inline constexpr std::string_view kOverExecCalls = "host_tool_calls";
// What a file is called until it is whole and gets its name.
inline constexpr std::string_view kOverExecPartSuffix = ".part";

// Absolute guest paths of one run, made by `guest_run_layout` only. All of them lie in the run's
// directory, and nothing that a program names lies beside the transport's own files.
//
//   <run>/work/                        the program's current directory
//   <run>/host_tools/program.py        the program; written by whoever starts the run
//   <run>/host_tools/casemate_tools.py the module it imports; likewise (over_exec_guest.h)
//   <run>/host_tools/...               the launcher, what the program printed, marks, calls
class GuestRunLayout {
 public:
  const std::string& run_directory() const { return run_directory_; }
  std::string work_directory() const { return beneath("work"); }
  // The program's own, so the head of its import path.
  std::string transport_directory() const { return beneath("host_tools"); }
  const std::string& program_name() const { return program_; }
  std::string program() const { return in_transport(program_); }
  std::string module() const { return in_transport(kOverExecModule); }
  std::string launcher() const { return in_transport(kOverExecLauncher); }
  std::string standard_output() const { return in_transport(kOverExecStdout); }
  std::string standard_error() const { return in_transport(kOverExecStderr); }
  // There once the program has ended, or says so: the guest can write it at any time.
  std::string exit_code() const { return in_transport(kOverExecExitCode); }
  std::string pid() const { return in_transport(kOverExecPid); }
  std::string session() const { return in_transport(kOverExecSession); }
  // Of call `number`, counted from 1.
  std::string request(std::uint64_t number) const;
  std::string response(std::uint64_t number) const;

  friend bool operator==(const GuestRunLayout&, const GuestRunLayout&) = default;

 private:
  friend GuestRunLayout guest_run_layout(std::string_view run_directory, std::string_view program);
  GuestRunLayout(std::string run_directory, std::string program)
      : run_directory_(std::move(run_directory)), program_(std::move(program)) {}

  std::string beneath(std::string_view name) const;
  std::string in_transport(std::string_view name) const;

  std::string run_directory_;
  std::string program_;
};

// The layout of a run in `run_directory`, which is normalised. It must be new to this run: a mark
// that an earlier one left ends the next at its first look. Throws `InvalidArgument` for a
// directory that is not absolute or has a ':' (PYTHONPATH could not name it), a backslash or a NUL;
// for a program that is no plain file name, that is one of the transport's names, or that would be
// imported in place of `casemate_tools`, of what that module needs, or of what the interpreter
// loads at its start.
GuestRunLayout guest_run_layout(std::string_view run_directory,
                                std::string_view program = "program.py");

}  // namespace casemate
