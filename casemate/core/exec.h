#pragma once

// One program run: what is asked, and what came of it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "casemate/core/vocabulary.h"

namespace casemate {

// A program and its arguments, passed as they are. Never re-quoted, never through a shell.
struct Argv {
  std::vector<std::string> words;
};

// A line for `/bin/sh -c`.
struct ShellLine {
  std::string line;
};

enum class OutputStream : std::uint8_t { out, err };

// Receives bytes as they come, on the thread that waits, with none of the library's locks held.
// An exception ends the run (the program is killed) and reaches the caller of `wait`.
using OutputCallback = std::function<void(OutputStream, std::span<const char>)>;

// Whether the program's standard input is empty, written by the host with `Process::write_stdin`,
// or copied from a descriptor of the host's inside `Process::wait`.
enum class StdinMode : std::uint8_t { empty, piped, forwarded };

// When a program that still runs is ended: with its call, or with the sandbox. One that is to stay
// runs in its call's scope, which then lasts as long as the program; what it serves is met on the
// sandbox's loopback, and its files where calls share them. It has no input and its output goes
// nowhere; the sandbox is busy as long as it lives. What ends a sandbox ends it too: it does not
// make a sandbox wait longer than `keep_idle` for its next user.
enum class Lifetime : std::uint8_t { call, sandbox };

// Bytes of one stream kept by default.
inline constexpr std::uint64_t kDefaultCaptureBytes = 256 * 1024;

// Every member has an initialiser, here and in the other plain structs, so that a list of named
// members may leave it out (-Wextra warns of one that has none).
struct ExecRequest {
  std::variant<Argv, ShellLine> command{};
  // Guest path, absolute or relative to the call's `work/`; empty means `work/`. Must exist and
  // must not lead through a link.
  std::string directory{};
  // The program's whole environment beside the sandbox's base set (PATH, HOME, LANG, TMPDIR, ...);
  // an entry here wins. Nothing of the host's is inherited.
  std::map<std::string, std::string> environment{};
  StdinMode stdin_mode = StdinMode::empty;
  // For `StdinMode::forwarded`: `wait` polls it beside the program's output and passes on what
  // comes, as fast as the program takes it; its end is the program's end of input, and the
  // program's end does not wait for it. Any readable descriptor; never closed, flags unchanged.
  // Must stay open until `wait` returned.
  int stdin_descriptor = -1;
  // From the program's start; absent is no bound. SIGKILL at once to all it started.
  std::optional<std::chrono::nanoseconds> timeout{};
  // At most so many bytes of each stream are kept: the head and the tail of it.
  std::uint64_t capture_bytes = kDefaultCaptureBytes;
  OutputCallback on_output{};
  Lifetime lifetime = Lifetime::call;
};

// The rule of `Lifetime::sandbox`, for every backend: no input, no callback. Throws
// `InvalidArgument`.
void check_lifetime(const ExecRequest& request);

// What was kept of a stream. When `missing_bytes` is 0, `bytes` is all of it; else `bytes` is the
// head up to `cut_at` and the tail from there, and `missing_bytes` were between them. Cuts lie on
// character boundaries where the stream is UTF-8. The bytes are a guest's: not UTF-8 by promise.
struct CapturedStream {
  std::string bytes{};
  std::uint64_t missing_bytes = 0;
  std::uint64_t cut_at = 0;
  friend bool operator==(const CapturedStream&, const CapturedStream&) = default;
};

// What had come of a program's output when its provider failed under it; comes with the refusal
// (`Carrying`) that `Process::wait` throws.
struct ReceivedOutput {
  CapturedStream out{};
  CapturedStream err{};
};

struct ExecResult {
  Outcome outcome = Outcome::exited;
  // Present for `exited` only, 0..255.
  std::optional<int> exit_code{};
  // "SIGKILL" and the like (or "SIG34" for one without a name), present for `signaled` only.
  std::optional<std::string> signal{};
  std::string stdout{};
  std::string stderr{};
  std::uint64_t stdout_missing_bytes = 0;
  std::uint64_t stderr_missing_bytes = 0;
  // Where the cut lies in the bytes above; see `CapturedStream::cut_at`.
  std::uint64_t stdout_cut_at = 0;
  std::uint64_t stderr_cut_at = 0;
  // The limit that bit, as far as the backend can tell (its page says), also when the program
  // survived it (a child killed for memory, a refused fork). `time` on a timeout.
  std::optional<Limit> limit{};
  // With the limit `disk`: the number of files ran out, not their bytes.
  bool files_ran_out = false;
  // From the program's start to the known end of all it started.
  std::chrono::nanoseconds wall{0};
  // Processor time of the program and everything it started, as far as the backend can count.
  std::chrono::nanoseconds cpu{0};
  // Highest memory use in bytes; 0 where it cannot be counted.
  std::uint64_t peak_memory = 0;
  // True when it is known, not hoped, that nothing the run started exists any more.
  bool stopped_known = false;
};

// Number of a signal's name ("SIGTERM" -> 15), absent for an unknown name.
std::optional<int> signal_number(std::string_view name);
// Name of a signal ("SIGTERM"); "SIG<n>" where it has none.
std::string signal_name(int number);

// The exit status a shell user expects: the program's own, 128 + N for a signal, 124 timed out,
// 137 out of memory, 130 cancelled.
int shell_exit_status(const ExecResult& result);

}  // namespace casemate
