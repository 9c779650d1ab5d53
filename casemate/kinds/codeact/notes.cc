#include "casemate/kinds/codeact/notes.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace casemate::codeact {
namespace {

std::string size_text(std::uint64_t bytes) {
  if (bytes >= kMiB && bytes % kMiB == 0) return fmt::format("{} MiB", bytes / kMiB);
  if (bytes >= kKiB && bytes % kKiB == 0) return fmt::format("{} KiB", bytes / kKiB);
  return fmt::format("{} bytes", bytes);
}

// The bound that a limit stands for, in words.
std::string bound_text(Limit limit, const Resources& resources, bool files_ran_out) {
  switch (limit) {
    case Limit::memory:
      // What is held is the sum: see `Resources`.
      return fmt::format("limit of {} for memory and written files together ({} and {})",
                         size_text(resources.memory_bytes.value + resources.disk_bytes.value),
                         size_text(resources.memory_bytes.value),
                         size_text(resources.disk_bytes.value));
    case Limit::pids:
      return fmt::format("limit of {} processes and threads", resources.pids.value);
    case Limit::disk:
      return files_ran_out
                 ? fmt::format("limit of {} files and directories", resources.disk_inodes.value)
                 : fmt::format("disk limit of {}", size_text(resources.disk_bytes.value));
    case Limit::cpu:
      return resources.cpu_seconds
                 ? fmt::format("limit of {} processor seconds", resources.cpu_seconds->value)
                 : "processor limit";
    case Limit::files:
      return fmt::format("limit of {} open files", resources.open_files.value);
    case Limit::time:
      return "time limit";
  }
  return "limit";
}

// The same without its number.
std::string_view bound_text(Limit limit, bool files_ran_out) {
  switch (limit) {
    case Limit::memory:
      return "limit for memory and written files together";
    case Limit::pids:
      return "limit of processes and threads";
    case Limit::disk:
      return files_ran_out ? "limit of files and directories" : "disk limit";
    case Limit::cpu:
      return "processor limit";
    case Limit::files:
      return "limit of open files";
    case Limit::time:
      return "time limit";
  }
  return "limit";
}

// Of a signal that the kernel sends at a bound which is no resource of the spec.
std::string_view meaning_of(std::string_view signal) {
  if (signal == "SIGXFSZ") return ": a file grew over the file size limit of the process";
  if (signal == "SIGXCPU") return ": the process used up its own limit of processor time";
  return "";
}

// Whether the end of the program is known, which is claimed only then.
std::string_view ended(const ExecResult& result) {
  return result.stopped_known ? "was stopped" : "could not be shown to have stopped";
}

}  // namespace

std::vector<std::string> outcome_notes(const ExecResult& result,
                                       const std::optional<Resources>& resources,
                                       const std::optional<std::chrono::nanoseconds>& timeout) {
  std::vector<std::string> notes;
  const auto add = [&notes](std::string text) { notes.push_back(std::move(text)); };
  const auto bound = [&](Limit limit) {
    return resources ? bound_text(limit, *resources, result.files_ran_out)
                     : std::string(bound_text(limit, result.files_ran_out));
  };
  switch (result.outcome) {
    case Outcome::exited:
      break;
    case Outcome::signaled:
      add(fmt::format("the program was ended by {}{}.", result.signal.value_or("a signal"),
                      meaning_of(result.signal.value_or(""))));
      break;
    case Outcome::timed_out:
      add(fmt::format("the program timed out: it ran longer than its limit of {:g} s and {}.",
                      std::chrono::duration<double>(timeout.value_or(result.wall)).count(),
                      ended(result)));
      break;
    case Outcome::cancelled:
      add(fmt::format("the call was cancelled; the program {}.", ended(result)));
      break;
    case Outcome::out_of_memory:
      add(
          fmt::format("the program ran out of memory: it was ended at the {}. Hold less at a time, "
                      "write less, or have the memory limit raised.",
                      bound(Limit::memory)));
      break;
  }
  const bool said_above =
      result.outcome == Outcome::timed_out || result.outcome == Outcome::out_of_memory;
  if (result.limit && !said_above) {
    add(fmt::format("the {} was reached during the run.", bound(*result.limit)));
  }
  return notes;
}

void append_outcome_notes(CodeactRun& run, const SandboxSpec& spec,
                          const std::optional<std::chrono::nanoseconds>& timeout) {
  for (std::string& note : outcome_notes(run.result, spec.resources, timeout)) {
    run.notes.push_back(std::move(note));
  }
}

}  // namespace casemate::codeact
