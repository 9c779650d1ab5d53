#include "casemate/host_tools/over_exec_stop.h"

#include <fmt/format.h>

#include <charconv>
#include <exception>
#include <optional>
#include <string>

#include "casemate/host_tools/over_exec.h"
#include "casemate/sys/deadline.h"

namespace casemate {
namespace {

// Digits and nothing else, above 0 and no more than a process number can be.
std::optional<std::int32_t> process_number(std::string_view text) {
  if (text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number <= 0) return std::nullopt;
  return number;
}

std::optional<std::int32_t> read_number(GuestFiles& files, const std::string& path,
                                        const GuestRunLayout& layout, const CallControl& control) {
  try {
    return process_number(
        files.read_file(path, layout.run_directory(), kOverExecMarkBytes, control));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool kill_guest(const ExecAndFiles& guest, std::int32_t target, std::chrono::nanoseconds patience) {
  ExecRequest request;
  // A shell's own `kill`: the program of that name is not everywhere.
  request.command = ShellLine{fmt::format("kill -KILL {}", target)};
  request.directory.assign(1, '/');  // g++ 12 takes the literal for an overlap (bug 105651)
  request.timeout = patience;
  request.capture_bytes = 4096;
  try {
    const ExecResult result = guest.exec(request, {.deadline = sys::deadline_after(patience)});
    return result.outcome == Outcome::exited && result.exit_code == 0;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::string_view to_string(StopSignal value) {
  switch (value) {
    case StopSignal::sent:
      return "sent";
    case StopSignal::refused:
      return "refused";
    case StopSignal::absent:
      return "absent";
    case StopSignal::unrecorded:
      return "unrecorded";
    case StopSignal::unknown:
      return "unknown";
  }
  return "unknown";
}

std::string_view to_string(StopReach value) {
  switch (value) {
    case StopReach::group:
      return "group";
    case StopReach::program:
      return "program";
    case StopReach::nothing:
      return "nothing";
  }
  return "unknown";
}

ProgramStop stop_guest_program(const ExecAndFiles& guest, const GuestRunLayout& layout,
                               SessionAnnounced session,
                               std::chrono::nanoseconds patience) noexcept {
  try {
    const CallControl control{.deadline = sys::deadline_after(patience)};
    try {
      if (!guest.files.stat_file(layout.pid(), layout.run_directory(), control)) {
        return {.signal = StopSignal::absent};
      }
    } catch (const std::exception&) {
      return {.signal = StopSignal::unknown};
    }
    const auto program = read_number(guest.files, layout.pid(), layout, control);
    if (!program) return {.signal = StopSignal::refused};
    std::optional<std::int32_t> group;
    if (session == SessionAnnounced::yes) {
      group = read_number(guest.files, layout.session(), layout, control);
      // -1 would be everybody.
      if (group && *group <= 1) group.reset();
    }
    if (!kill_guest(guest, group ? -*group : *program, patience)) {
      return {.signal = StopSignal::refused};
    }
    return {.signal = StopSignal::sent, .reach = group ? StopReach::group : StopReach::program};
  } catch (...) {
    return {};
  }
}

}  // namespace casemate
