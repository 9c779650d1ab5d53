#pragma once

// What travels between the host's `AgentSandbox` and the guest program, message by message.
//
// Three kinds of connection, each a stream of frames (frame.h):
//
// Control, one a call; the host connects it.
//   host `open_call`  with 0..8 descriptors of control groups and, when it says so, a counter of
//                     processor time, a socket for host tools and last one for egress -> guest
//                     `call_opened` | `failed`
//   host `attach`     with one descriptor, the guest's end of a new connection; no answer here.
//   With
//                     a second one a resident's marks the sandbox as busy while it is open
//   host `close_call` -> guest `call_closed`, after every process of the call is reaped
//   host `close_after`: the call is closed, and that is answered, once all that is attached has
//                     ended. Nothing but `close_call` may follow, which does not wait for that
//   End of stream is `close_call` without an answer.
//
// Exec, one a program; attached.
//   host `exec` -> guest `begun` (nothing of the program exists yet) -> `started` | `failed`
//   then guest `output`, `stdin_taken`, `stdin_closed`; host `stdin_data`, `stdin_end`, `signal`,
//   `cancel`, until the guest's last frame, `ended`. The host closing the connection at any time
//   ends everything of the exec. Standard input has a window: at most `kStdinWindow` bytes are
//   under way that `stdin_taken` has not given back, so `cancel` never waits behind input.
//
//   Instead of `exec`, a program can be held first: host `hold` starts it with a FIFO for its file,
//   at which it stops -> guest `held`, once it opened that | `failed`. Host `release` brings the
//   file's content and is answered like an `exec`: `begun`, `started` | `failed`, and so on.
//
// Files, any number; attached. In sequence on each, one answered before the next:
//   host `write_file`, `data`..., `end`  -> guest `done` | `failed`, in any case after `end`
//   host `stat_file`                     -> guest `entry` | `failed`
//   host `read_file`                     -> guest `data`..., `end` | `failed` at any point
//   host `remove_file`                   -> guest `done` | `failed`
//   host `list_directory`                -> guest `entries`..., `end` | `failed` at any point
//   host `archive`                       -> guest `data`..., `end` | `failed` at any point
//   host `unpack`, `data`..., `end`      -> guest `done` | `failed`, in any case after `end`
//   The last two are about all that the sandbox keeps (`Place::kept_directories`); the host takes
//   their data as it comes and gives it back as it is.
//
// Both sides refuse everything else. Encoders throw `std::length_error` for a message that cannot
// be sent; decoders throw `ProtocolError` for one that cannot be meant.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/core/egress_frame.h"
#include "casemate/guest/frame.h"

namespace casemate::guest {

inline constexpr std::uint32_t kProtocolVersion = 7;

// Wire values; never reused.
enum class FrameType : std::uint8_t {
  failed = 1,
  open_call = 2,
  call_opened = 3,
  attach = 4,
  close_call = 5,
  call_closed = 6,
  close_after = 7,

  exec = 16,
  begun = 17,
  started = 18,
  output_out = 19,
  output_err = 20,
  stdin_data = 21,
  stdin_end = 22,
  stdin_taken = 23,
  stdin_closed = 24,
  signal = 25,
  cancel = 26,
  ended = 27,
  hold = 28,
  release = 29,
  held = 30,

  write_file = 32,
  stat_file = 33,
  read_file = 34,
  remove_file = 35,
  list_directory = 36,
  data = 37,
  end = 38,
  done = 39,
  entry = 40,
  entries = 41,
  archive = 42,
  unpack = 43,
};

constexpr std::uint8_t wire(FrameType type) { return static_cast<std::uint8_t>(type); }

// Whether `frame` is of that type.
inline bool is(const Frame& frame, FrameType type) { return frame.type == wire(type); }

// Throws `ProtocolError` when the frame carries anything but its type.
void expect_empty(const Frame& frame);
// Throws `ProtocolError` unless the payload is 1 to `kMaxData` bytes.
void expect_data(const Frame& frame);

// Linux's own bound for a path with its NUL.
inline constexpr std::size_t kMaxPath = 4096;
inline constexpr std::size_t kMaxName = 255;
// unix(7): a socket's path with its NUL.
inline constexpr std::size_t kMaxSocketPath = 108;
inline constexpr std::size_t kMaxFailureText = 1024;
inline constexpr std::uint32_t kStdinWindow = 128 * 1024;
// Most entries of one listing.
inline constexpr std::uint32_t kMaxEntries = 100'000;

// 12 lower-case hex digits.
bool is_call_id(std::string_view text);

// -- Any connection ------------------------------------------------------------------------------

enum class FailureReason : std::uint8_t {
  errno_value = 0,   // the operation failed with `error`
  path_refused = 1,  // through a link, or the directory itself
  over_cap = 2,      // more bytes or entries than asked for at most
  no_resources = 3,  // the guest could not provide for it (a fork, a cgroup); `error` says why
  directory = 4,     // an exec's working directory failed with `error`
};

struct Failure {
  FailureReason reason = FailureReason::errno_value;
  // An errno, 1..4095, or 0 where there is none.
  std::int32_t error = 0;
  // For the operator's log; what a guest says, so never trusted.
  std::string text;
};

std::string encode(const Failure& message);
Failure decode_failure(std::string_view payload);

// -- Control -------------------------------------------------------------------------------------

// Comes with the files of the control groups that the call's programs join.
struct OpenCall {
  std::uint32_t version = kProtocolVersion;
  std::string id;
  // Processor time that the call's programs may use together; 0: no bound. With one, the last
  // descriptor but the sockets is the kernel's counter of it (cpuacct.usage or cpu.stat).
  std::uint64_t cpu_limit_ns = 0;
  // How many processors they can use at a time, in thousandths; 0: all there are.
  std::uint64_t cpu_share_millis = 0;
  // The last descriptor is an unbound socket of the host's, to be bound where only this call sees
  // it.
  bool host_tools = false;
  // The last descriptor is such a socket for the call's way out, behind the one for host tools. The
  // call then has a network of its own and doors to that socket, which pretend what the rules say.
  bool egress = false;
  // Of a call with egress.
  std::vector<EgressDoorRule> door_rules{};
};

std::string encode(const OpenCall& message);
// The version alone, which is first in every version of the protocol: the rest can be decoded only
// when it is ours.
std::uint32_t decode_version(std::string_view payload);
// The version is the caller's to check; the id is checked.
OpenCall decode_open_call(std::string_view payload);

struct CallOpened {
  std::uint32_t version = kProtocolVersion;
  // Where the host tool socket was bound, for the call's programs: absolute; empty without one.
  std::string host_tools{};
  // The port of 127.0.0.1 at which the call's programs find a proxy; 0 without egress.
  std::uint16_t proxy_port = 0;
};

std::string encode(const CallOpened& message);
CallOpened decode_call_opened(std::string_view payload);

// A resident is an exec whose program has the sandbox's lifetime: no input, no output; the end of
// its connection, or of its call, ends nothing.
enum class AttachKind : std::uint8_t { exec = 0, files = 1, resident = 2 };

std::string encode(AttachKind kind);
AttachKind decode_attach(std::string_view payload);

struct CallClosed {
  // Every process was reaped and the directory removed.
  bool known = false;
};

std::string encode(const CallClosed& message);
CallClosed decode_call_closed(std::string_view payload);

// -- Exec ----------------------------------------------------------------------------------------

struct Exec {
  // At least one word; a first one without a slash is looked up on the program's PATH.
  std::vector<std::string> argv;
  // Absolute, normalised.
  std::string directory;
  // The whole environment beside the guest's base entries, which these replace.
  std::vector<std::pair<std::string, std::string>> environment;
  bool stdin_piped = false;
  // From the program's start; 0: no bound.
  std::uint64_t timeout_ns = 0;
};

std::string encode(const Exec& message);
// Also refuses an empty argv, a relative directory, an environment name that is empty or holds '='.
Exec decode_exec(std::string_view payload);

// What goes through the FIFO in one piece: Linux's own size of a pipe.
inline constexpr std::size_t kMaxHeldSource = 64 * 1024;

inline constexpr std::size_t kMaxImports = 64;
inline constexpr std::size_t kMaxImportName = 200;
// Whether a module may be asked for by that name: identifiers of ASCII with dots between them.
bool is_import_name(std::string_view name);

struct Hold {
  // Its timeout counts for nothing.
  Exec exec;
  // Absolute; of the program's file. Its directory is made, and must not be there.
  std::string path;
  // Names of Python modules for the interpreter to import before it waits, at most `kMaxImports`.
  std::vector<std::string> imports{};
};

std::string encode(const Hold& message);
Hold decode_hold(std::string_view payload);

struct Release {
  // From now; 0: none.
  std::uint64_t timeout_ns = 0;
  // At most `kMaxHeldSource`.
  std::string source;
};

std::string encode(const Release& message);
Release decode_release(std::string_view payload);

std::string encode_stdin_taken(std::uint32_t bytes);
std::uint32_t decode_stdin_taken(std::string_view payload);

// 1..64.
std::string encode_signal(int number);
int decode_signal(std::string_view payload);

enum class EndCause : std::uint8_t { exited = 0, signaled = 1, timed_out = 2, cancelled = 3 };

struct Ended {
  EndCause cause = EndCause::exited;
  // 0..255, 0 unless exited.
  std::int32_t exit_code = 0;
  // 1..64, 0 unless signaled.
  std::int32_t signal = 0;
  std::uint64_t wall_ns = 0;
  std::uint64_t cpu_ns = 0;
  // Bytes, of the largest single process.
  std::uint64_t max_rss = 0;
  // Every process of the exec was reaped.
  bool stopped_known = false;
  // The programs' storage had no room left at the end.
  bool disk_full = false;
  // And what was missing was files, not bytes.
  bool files_ran_out = false;
  // The user of the programs could have no process more at the end.
  bool processes_ran_out = false;
  // By the kernel's counters, meanwhile; not told where the host reads those itself: a process was
  // not made because there were too many, or was killed because memory ran out.
  bool forks_refused = false;
  bool memory_ran_out = false;
};

std::string encode(const Ended& message);
Ended decode_ended(std::string_view payload);

// -- Files ---------------------------------------------------------------------------------------

// `directory` is absolute, `path` relative to it ("" is the directory itself); both normalised: no
// empty, "." or ".." component, no trailing slash. The decoders refuse anything else.
struct FilePath {
  std::string directory;
  std::string path;
};

struct WriteFile {
  FilePath file;
  // Exactly so many bytes follow in `data` frames.
  std::uint64_t size = 0;
};

std::string encode(const WriteFile& message);
WriteFile decode_write_file(std::string_view payload);

struct ReadFile {
  FilePath file;
  std::uint64_t max_bytes = 0;
};

std::string encode(const ReadFile& message);
ReadFile decode_read_file(std::string_view payload);

std::string encode(const FilePath& message);
FilePath decode_file_path(std::string_view payload);

struct RemoveFile {
  FilePath file;
  bool recursive = false;
};

std::string encode(const RemoveFile& message);
RemoveFile decode_remove_file(std::string_view payload);

enum class WireKind : std::uint8_t { file = 0, directory = 1, symlink = 2, other = 3 };

struct WireEntry {
  // One component, 1..255 bytes without '/' and NUL, not "." or ".."; empty in `entry`.
  std::string name;
  WireKind kind = WireKind::other;
  // Of a regular file; 0 for others.
  std::uint64_t size = 0;
};

// Absent: there is nothing under that path.
std::string encode(const std::optional<WireEntry>& message);
std::optional<WireEntry> decode_entry(std::string_view payload);

// What `archive` may send at most of a file system with these bounds: its data, and what is said
// about each file. For a host that counts bytes and looks at none.
std::uint64_t most_archive_bytes(std::uint64_t disk_bytes, std::uint64_t disk_inodes) noexcept;

// Adds one entry to an `entries` payload.
void append_entry(Writer& writer, const WireEntry& entry);
// All entries of one `entries` frame, at least one.
std::vector<WireEntry> decode_entries(std::string_view payload);

}  // namespace casemate::guest
