#include "casemate/host_tools/over_exec_provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"

namespace casemate {

ExecAndFiles::ExecAndFiles(Sandbox& sandbox)
    : ExecAndFiles(sandbox, [&sandbox](const ExecRequest& request, const CallControl& control) {
        return sandbox.exec(request, control);
      }) {}

ExecAndFiles::ExecAndFiles(Call& call)
    : ExecAndFiles(call, [&call](const ExecRequest& request, const CallControl& control) {
        return call.exec(request, control);
      }) {}

Arrival read_arrival(GuestFiles& files, const std::string& path, std::string_view working_directory,
                     std::uint64_t max_bytes, const CallControl& control) {
  const std::optional<SandboxEntry> entry = files.stat_file(path, working_directory, control);
  if (!entry || entry->kind != EntryKind::file) return {};
  if (entry->size_bytes == 0U) return {.size = 0};
  if (!entry->size_bytes || *entry->size_bytes > max_bytes) {
    return {.state = Arrival::State::too_large, .size = entry->size_bytes};
  }
  try {
    std::string bytes = files.read_file(path, working_directory, max_bytes, control);
    if (bytes.empty()) return {};
    if (bytes.size() > max_bytes) {
      return {.state = Arrival::State::too_large, .size = bytes.size()};
    }
    return {.state = Arrival::State::here, .bytes = std::move(bytes)};
  } catch (const SandboxTransferCapExceeded&) {
    return {.state = Arrival::State::too_large};
  } catch (const SandboxFileError& error) {
    if (error.error_number() != ENOENT) throw;
    return {};
  }
}

std::optional<std::string> remove_guest_tree(const ExecAndFiles& guest, std::string_view path,
                                             std::chrono::steady_clock::time_point until,
                                             const CallControl& control) noexcept {
  try {
    if (!path.starts_with('/') || normalise_guest_path(path) != path ||
        std::ranges::count(path, '/') < 2) {
      return "it is too near to the guest's root, or no plain path";
    }
    ExecRequest request;
    request.command = Argv{{"rm", "-rf", "--", std::string(path)}};
    request.directory.assign(1, '/');  // g++ 12 takes the literal for an overlap (bug 105651)
    request.timeout =
        std::max(until - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration(1));
    request.capture_bytes = 4096;
    CallControl bounded = control;
    bounded.deadline = control.deadline ? std::min(*control.deadline, until) : until;
    const ExecResult result = guest.exec(request, bounded);
    if (result.outcome == Outcome::exited && result.exit_code == 0) return std::nullopt;
    return fmt::format("rm: {} {}: {}", to_string(result.outcome), result.exit_code.value_or(-1),
                       escape_for_display(result.stderr));
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of no known kind";
  }
}

}  // namespace casemate
