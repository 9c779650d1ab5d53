#include "casemate/guest/protocol.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace casemate::guest {
namespace {

constexpr std::int32_t kMaxErrno = 4095;
constexpr int kMaxSignal = 64;
// Linux: one string of argv or envp is at most 32 pages.
constexpr std::size_t kMaxWord = 128 * 1024;

template <typename Enum>
Enum decode_enum(Reader& reader, Enum last) {
  const std::uint8_t value = reader.u8();
  if (value > static_cast<std::uint8_t>(last)) throw ProtocolError("an unknown enumerator");
  return static_cast<Enum>(value);
}

bool is_component(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos;
}

// Relative and normalised; "" is fine.
bool is_normal_relative(std::string_view path) {
  if (path.empty()) return true;
  while (true) {
    const std::size_t slash = path.find('/');
    if (!is_component(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool is_normal_absolute(std::string_view path) {
  return path.starts_with('/') && is_normal_relative(path.substr(1));
}

FilePath read_file_path(Reader& reader) {
  FilePath file;
  file.directory = reader.c_string(kMaxPath - 1);
  if (!is_normal_absolute(file.directory)) throw ProtocolError("a directory is not absolute");
  file.path = reader.c_string(kMaxPath - 1);
  if (!is_normal_relative(file.path)) throw ProtocolError("a path is not normalised");
  return file;
}

void write_file_path(Writer& writer, const FilePath& file) {
  writer.string(file.directory).string(file.path);
}

// Reads one thing that fills the whole payload.
template <typename Read>
auto whole(std::string_view payload, Read read) {
  Reader reader(payload);
  auto value = read(reader);
  reader.finish();
  return value;
}

}  // namespace

void expect_empty(const Frame& frame) {
  if (!frame.payload.empty()) throw ProtocolError("a payload where none is allowed");
}

void expect_data(const Frame& frame) {
  if (frame.payload.empty() || frame.payload.size() > kMaxData) {
    throw ProtocolError("a data frame is empty or over 64 KiB");
  }
}

bool is_call_id(std::string_view text) {
  return text.size() == 12 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// -- Any connection ------------------------------------------------------------------------------

std::string encode(const Failure& message) {
  const std::string_view text = std::string_view(message.text).substr(0, kMaxFailureText);
  return Writer()
      .u8(static_cast<std::uint8_t>(message.reason))
      .i32(message.error)
      .string(text)
      .take();
}

Failure decode_failure(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    Failure message;
    message.reason = decode_enum(reader, FailureReason::directory);
    message.error = reader.i32();
    const bool needs_errno =
        message.reason == FailureReason::errno_value || message.reason == FailureReason::directory;
    if (message.error < (needs_errno ? 1 : 0) || message.error > kMaxErrno) {
      throw ProtocolError("an errno is out of range");
    }
    message.text = reader.string(kMaxFailureText);
    return message;
  });
}

// -- Control -------------------------------------------------------------------------------------

std::string encode(const OpenCall& message) {
  return Writer()
      .u32(message.version)
      .string(message.id)
      .u64(message.cpu_limit_ns)
      .u64(message.cpu_share_millis)
      .u8(message.host_tools ? 1 : 0)
      .u8(message.egress ? 1 : 0)
      .string(encode_door_rules(message.door_rules))
      .take();
}

std::uint32_t decode_version(std::string_view payload) { return Reader(payload).u32(); }

OpenCall decode_open_call(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    OpenCall message;
    message.version = reader.u32();
    message.id = reader.string(12);
    if (!is_call_id(message.id)) throw ProtocolError("a call id is not 12 hex digits");
    message.cpu_limit_ns = reader.u64();
    message.cpu_share_millis = reader.u64();
    constexpr auto kMaxTime = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (message.cpu_limit_ns > kMaxTime) throw ProtocolError("a time is out of range");
    message.host_tools = reader.flag();
    message.egress = reader.flag();
    auto rules = decode_door_rules(reader.string(kMaxPayload));
    if (!rules || (!message.egress && !rules->empty())) {
      throw ProtocolError("the rules of the doors are malformed");
    }
    message.door_rules = std::move(*rules);
    return message;
  });
}

std::string encode(const CallOpened& message) {
  return Writer().u32(message.version).string(message.host_tools).u32(message.proxy_port).take();
}

CallOpened decode_call_opened(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    CallOpened message;
    message.version = reader.u32();
    message.host_tools = reader.c_string(kMaxSocketPath - 1);
    if (!message.host_tools.empty() && message.host_tools.front() != '/') {
      throw ProtocolError("a socket's path is not absolute");
    }
    const std::uint32_t port = reader.u32();
    if (port > std::numeric_limits<std::uint16_t>::max()) {
      throw ProtocolError("a port is out of range");
    }
    message.proxy_port = static_cast<std::uint16_t>(port);
    return message;
  });
}

std::string encode(AttachKind kind) { return Writer().u8(static_cast<std::uint8_t>(kind)).take(); }

AttachKind decode_attach(std::string_view payload) {
  return whole(payload, [](Reader& reader) { return decode_enum(reader, AttachKind::resident); });
}

std::string encode(const CallClosed& message) { return Writer().u8(message.known ? 1 : 0).take(); }

CallClosed decode_call_closed(std::string_view payload) {
  return whole(payload, [](Reader& reader) { return CallClosed{reader.flag()}; });
}

// -- Exec ----------------------------------------------------------------------------------------

std::string encode(const Exec& message) {
  Writer writer;
  writer.u32(static_cast<std::uint32_t>(message.argv.size()));
  for (const std::string& word : message.argv) writer.string(word);
  writer.string(message.directory);
  writer.u32(static_cast<std::uint32_t>(message.environment.size()));
  for (const auto& [name, value] : message.environment) writer.string(name).string(value);
  writer.u8(message.stdin_piped ? 1 : 0).u64(message.timeout_ns);
  return writer.take();
}

Exec decode_exec(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    Exec message;
    // Nothing is reserved by a count: each element has to be there in bytes.
    const std::uint32_t words = reader.u32();
    if (words == 0) throw ProtocolError("an empty argv");
    for (std::uint32_t i = 0; i < words; ++i) message.argv.push_back(reader.c_string(kMaxWord));
    message.directory = reader.c_string(kMaxPath - 1);
    if (!is_normal_absolute(message.directory)) throw ProtocolError("a directory is not absolute");
    const std::uint32_t entries = reader.u32();
    for (std::uint32_t i = 0; i < entries; ++i) {
      std::string name = reader.c_string(kMaxWord);
      if (name.empty() || name.find('=') != std::string::npos) {
        throw ProtocolError("an environment name is empty or holds '='");
      }
      std::string value = reader.c_string(kMaxWord);
      message.environment.emplace_back(std::move(name), std::move(value));
    }
    message.stdin_piped = reader.flag();
    message.timeout_ns = reader.u64();
    return message;
  });
}

std::string encode(const Hold& message) {
  Writer writer;
  writer.string(message.path).string(encode(message.exec));
  writer.u32(static_cast<std::uint32_t>(message.imports.size()));
  for (const std::string& name : message.imports) writer.string(name);
  return std::move(writer).take();
}

bool is_import_name(std::string_view name) {
  bool at_beginning = true;
  for (const char letter : name) {
    const bool digit = letter >= '0' && letter <= '9';
    const bool other =
        letter == '_' || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (letter == '.' ? at_beginning : !(other || (digit && !at_beginning))) return false;
    at_beginning = letter == '.';
  }
  return !at_beginning && name.size() <= kMaxImportName;
}

Hold decode_hold(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    Hold message;
    message.path = reader.c_string(kMaxPath - 1);
    if (!is_normal_absolute(message.path)) throw ProtocolError("a held file is not absolute");
    message.exec = decode_exec(reader.string(kMaxPayload));
    if (message.exec.stdin_piped) throw ProtocolError("a held program has no input");
    const std::uint32_t count = reader.u32();
    if (count > kMaxImports) throw ProtocolError("too many modules to import");
    for (std::uint32_t i = 0; i < count; ++i) {
      message.imports.push_back(reader.string(kMaxImportName));
      if (!is_import_name(message.imports.back())) throw ProtocolError("no name of a module");
    }
    return message;
  });
}

std::string encode(const Release& message) {
  return Writer().u64(message.timeout_ns).string(message.source).take();
}

Release decode_release(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    Release message;
    message.timeout_ns = reader.u64();
    message.source = reader.string(kMaxHeldSource);
    return message;
  });
}

std::string encode_stdin_taken(std::uint32_t bytes) { return Writer().u32(bytes).take(); }

std::uint32_t decode_stdin_taken(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    const std::uint32_t bytes = reader.u32();
    if (bytes == 0 || bytes > kStdinWindow) throw ProtocolError("a credit is out of range");
    return bytes;
  });
}

std::string encode_signal(int number) {
  return Writer().u8(static_cast<std::uint8_t>(number)).take();
}

int decode_signal(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    const int number = reader.u8();
    if (number < 1 || number > kMaxSignal) throw ProtocolError("a signal is out of range");
    return number;
  });
}

std::string encode(const Ended& message) {
  return Writer()
      .u8(static_cast<std::uint8_t>(message.cause))
      .i32(message.exit_code)
      .i32(message.signal)
      .u64(message.wall_ns)
      .u64(message.cpu_ns)
      .u64(message.max_rss)
      .u8(message.stopped_known ? 1 : 0)
      .u8(message.disk_full ? 1 : 0)
      .u8(message.files_ran_out ? 1 : 0)
      .u8(message.processes_ran_out ? 1 : 0)
      .u8(message.forks_refused ? 1 : 0)
      .u8(message.memory_ran_out ? 1 : 0)
      .take();
}

Ended decode_ended(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    Ended message;
    message.cause = decode_enum(reader, EndCause::cancelled);
    message.exit_code = reader.i32();
    message.signal = reader.i32();
    message.wall_ns = reader.u64();
    message.cpu_ns = reader.u64();
    message.max_rss = reader.u64();
    message.stopped_known = reader.flag();
    message.disk_full = reader.flag();
    message.files_ran_out = reader.flag();
    message.processes_ran_out = reader.flag();
    message.forks_refused = reader.flag();
    message.memory_ran_out = reader.flag();
    const int max_code = message.cause == EndCause::exited ? 255 : 0;
    if (message.exit_code < 0 || message.exit_code > max_code) {
      throw ProtocolError("an exit code does not fit its cause");
    }
    const bool signaled = message.cause == EndCause::signaled;
    if (message.signal < (signaled ? 1 : 0) || message.signal > (signaled ? kMaxSignal : 0)) {
      throw ProtocolError("a signal does not fit its cause");
    }
    // They become signed durations.
    constexpr auto kMaxTime = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (message.wall_ns > kMaxTime || message.cpu_ns > kMaxTime) {
      throw ProtocolError("a time is out of range");
    }
    return message;
  });
}

// -- Files ---------------------------------------------------------------------------------------

std::string encode(const WriteFile& message) {
  Writer writer;
  write_file_path(writer, message.file);
  return writer.u64(message.size).take();
}

WriteFile decode_write_file(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    FilePath file = read_file_path(reader);
    return WriteFile{std::move(file), reader.u64()};
  });
}

std::string encode(const ReadFile& message) {
  Writer writer;
  write_file_path(writer, message.file);
  return writer.u64(message.max_bytes).take();
}

ReadFile decode_read_file(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    FilePath file = read_file_path(reader);
    return ReadFile{std::move(file), reader.u64()};
  });
}

std::string encode(const FilePath& message) {
  Writer writer;
  write_file_path(writer, message);
  return writer.take();
}

FilePath decode_file_path(std::string_view payload) { return whole(payload, read_file_path); }

std::string encode(const RemoveFile& message) {
  Writer writer;
  write_file_path(writer, message.file);
  return writer.u8(message.recursive ? 1 : 0).take();
}

RemoveFile decode_remove_file(std::string_view payload) {
  return whole(payload, [](Reader& reader) {
    FilePath file = read_file_path(reader);
    return RemoveFile{std::move(file), reader.flag()};
  });
}

std::string encode(const std::optional<WireEntry>& message) {
  Writer writer;
  writer.u8(message ? 1 : 0);
  if (message) writer.u8(static_cast<std::uint8_t>(message->kind)).u64(message->size);
  return writer.take();
}

std::optional<WireEntry> decode_entry(std::string_view payload) {
  return whole(payload, [](Reader& reader) -> std::optional<WireEntry> {
    if (!reader.flag()) return std::nullopt;
    WireEntry entry;
    entry.kind = decode_enum(reader, WireKind::other);
    entry.size = reader.u64();
    return entry;
  });
}

std::uint64_t most_archive_bytes(std::uint64_t disk_bytes, std::uint64_t disk_inodes) noexcept {
  // So large that no sum wraps; nothing has that much.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50;
  // A name, a link's target that takes no page of its own (128 bytes in Linux 6), and numbers.
  constexpr std::uint64_t kBytesOfAnEntry = 640;
  // An extent is a page of data at least, and has two numbers in front.
  constexpr std::uint64_t kPage = 4096;
  constexpr std::uint64_t kExtentBytes = 16;
  const std::uint64_t data = std::min(disk_bytes, kMost);
  const std::uint64_t entries = std::min(disk_inodes, kMost / kBytesOfAnEntry);
  return data + data / kPage * kExtentBytes + entries * kBytesOfAnEntry + kMaxData;
}

void append_entry(Writer& writer, const WireEntry& entry) {
  writer.string(entry.name).u8(static_cast<std::uint8_t>(entry.kind)).u64(entry.size);
}

std::vector<WireEntry> decode_entries(std::string_view payload) {
  if (payload.empty() || payload.size() > kMaxData) {
    throw ProtocolError("a piece of a listing is empty or over 64 KiB");
  }
  return whole(payload, [](Reader& reader) {
    std::vector<WireEntry> entries;
    while (!reader.at_end()) {
      WireEntry entry;
      entry.name = reader.c_string(kMaxName);
      if (!is_component(entry.name)) throw ProtocolError("an entry's name is no name");
      entry.kind = decode_enum(reader, WireKind::other);
      entry.size = reader.u64();
      entries.push_back(std::move(entry));
    }
    return entries;
  });
}

}  // namespace casemate::guest
