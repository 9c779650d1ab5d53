#pragma once

// The two things that the file transport needs of a provider, and what it does with them alone.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/core/control.h"
#include "casemate/core/exec.h"
#include "casemate/core/sandbox.h"

namespace casemate {

// Borrowed: what it was made of must outlive it.
//
// A process that a program leaves behind must outlive the program's exec: a provider that ends all
// that an exec started cannot carry this transport (and has a better one).
struct ExecAndFiles {
  ExecAndFiles(GuestFiles& guest_files,
               std::function<ExecResult(const ExecRequest&, const CallControl&)> guest_exec)
      : files(guest_files), exec(std::move(guest_exec)) {}
  explicit ExecAndFiles(Sandbox& sandbox);
  explicit ExecAndFiles(Call& call);

  GuestFiles& files;
  std::function<ExecResult(const ExecRequest&, const CallControl&)> exec;
};

// A file that the guest writes while the host looks.
struct Arrival {
  enum class State : std::uint8_t {
    // Missing, empty, or no regular file.
    not_yet,
    // More than `max_bytes`, or of a size that the provider does not vouch for.
    too_large,
    here,
  };
  State state = State::not_yet;
  // With `here`: not empty, at most `max_bytes`.
  std::string bytes{};
  // With `too_large`, where it is known; with `not_yet`, 0 for a regular file that is empty.
  std::optional<std::uint64_t> size{};
};

// Reads it if it is there. A refusal of the provider other than "no such file" and "larger than
// that" passes through.
Arrival read_arrival(GuestFiles& files, const std::string& path, std::string_view working_directory,
                     std::uint64_t max_bytes, const CallControl& control);

// Removes a tree of the guest by its own `rm`. Why it could not, or nothing. Refuses a path that is
// not absolute, climbs, or has fewer than two components. Never throws.
std::optional<std::string> remove_guest_tree(const ExecAndFiles& guest, std::string_view path,
                                             std::chrono::steady_clock::time_point until,
                                             const CallControl& control = {}) noexcept;

}  // namespace casemate
