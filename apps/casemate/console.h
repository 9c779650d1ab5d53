#pragma once

// The three standard streams of this process, and what Casemate itself says.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::app {

// Exit statuses of Casemate's own (surface, section 2).
inline constexpr int kExitRefused = 125;
inline constexpr int kExitOutputClosed = 141;  // as a shell shows death by SIGPIPE

// Whoever reads our output has closed it. Not a failure: the run is simply over.
class OutputClosed : public std::exception {
 public:
  const char* what() const noexcept override { return "the output was closed"; }
};

// Writing our output failed, for example because a disk is full.
using OutputFailed = Refusal<"OutputFailed">;

// Makes descriptors 0 to 2 open ones, so that nothing opened later becomes a standard stream, and
// SIGPIPE and SIGXFSZ errors. What was closed stays closed to the eye: reading gives the end,
// writing fails.
void prepare_standard_streams();

// Writes everything, whatever the descriptor's flags. Throws `OutputClosed`, `OutputFailed`.
void write_all(int fd, std::string_view bytes);

// Passes a guest's stream on. To a pipe or file byte for byte; to a terminal as text whose control
// characters (all but newline, tab and carriage return) are shown instead of obeyed: an escape
// sequence of the program's could move the cursor over what Casemate said, rename the window or
// make the terminal type. Colours are lost with them; `| cat` shows the bytes.
//
// A reader that does not read holds the program up, as without Casemate, but never this process for
// ever. What it does not take is dropped and counted:
//  - at once after a stop was requested;
//  - after `kReaderPatience` in which it took nothing, once the program's time is over.
// A closed standard output ends the run (`OutputClosed`); a closed standard error ends only what
// would have gone there.
class GuestStream {
 public:
  GuestStream(int fd, const std::stop_token& stop);

  // When the program's time is over at the latest; until it is set, never.
  void set_end_of_time(std::chrono::steady_clock::time_point end) { end_of_time_ = end; }

  // Throws `OutputClosed`, `OutputFailed`.
  void write(std::span<const char> bytes);
  // What is left of a cut character. Only a terminal has any.
  void finish();

  std::uint64_t dropped_bytes() const { return dropped_; }

 private:
  void pass_on(std::string_view bytes);
  void pass_on_while_open(std::string_view bytes);
  bool wait_until_writable() const;

  int fd_;
  bool terminal_;
  bool closed_ = false;
  std::uint64_t dropped_ = 0;
  std::optional<std::chrono::steady_clock::time_point> end_of_time_;
  Utf8Decoder decoder_;
  sys::UniqueFd stopped_;
  std::stop_callback<std::function<void()>> on_stop_;
};

// Long enough for a reader that is busy, short beside any wait that a person takes for a hang.
inline constexpr std::chrono::seconds kReaderPatience{5};

// Valid UTF-8 with every control character but newline, tab and carriage return in caret or
// \x notation.
std::string show_controls(std::string_view valid_utf8);

// `casemate: TEXT` and a newline on standard error, as one line and one write. It begins a line
// also where a program's stream stopped within one: a newline goes before it when the last byte
// that this process wrote there was another (also to standard output, where both lead to the same
// file or terminal). Never throws: when standard error is gone there is nobody left to tell.
void say(std::string_view text) noexcept;
// The same without the name in front, for lines whose whole form is fixed.
void say_line(std::string_view text) noexcept;
// `casemate: error: CODE: MESSAGE; HINT`.
void say_error(std::string_view code, std::string_view message, std::string_view hint) noexcept;

}  // namespace casemate::app
