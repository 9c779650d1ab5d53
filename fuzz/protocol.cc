// Every message of the guest protocol, in both directions: what decodes encodes to the same bytes
// (so there is one spelling of each message), and holds what its type promises.

#include "casemate/guest/protocol.h"

#include <algorithm>
#include <optional>
#include <string>

#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using namespace casemate::guest;

bool no_nul(std::string_view text) { return text.find('\0') == std::string_view::npos; }

// Absolute or relative, without a component that leads elsewhere.
bool is_normal(std::string_view path, bool absolute) {
  if (absolute != path.starts_with('/')) return false;
  const std::string framed = "/" + std::string(path.substr(absolute ? 1 : 0)) + "/";
  if (framed == "//") return true;
  return framed.find("//") == std::string::npos && framed.find("/./") == std::string::npos &&
         framed.find("/../") == std::string::npos;
}

void check(const FilePath& file) {
  require(is_normal(file.directory, true), "a directory is absolute and normal");
  require(is_normal(file.path, false), "a path is relative and normal");
  require(no_nul(file.directory) && no_nul(file.path), "no path holds a NUL");
  require(file.directory.size() < kMaxPath && file.path.size() < kMaxPath, "paths are bounded");
}

std::string again(const Failure& m) {
  require(m.error >= 0 && m.error <= 4095, "an errno is one");
  require(m.text.size() <= kMaxFailureText, "a failure's text is bounded");
  return encode(m);
}

std::string again(const OpenCall& m) {
  require(is_call_id(m.id), "a call's id is one");
  return encode(m);
}

std::string again(const Exec& m) {
  require(!m.argv.empty(), "there is a word to run");
  require(std::ranges::all_of(m.argv, no_nul), "no word holds a NUL");
  require(is_normal(m.directory, true), "a program's directory is absolute and normal");
  for (const auto& [name, value] : m.environment) {
    require(!name.empty() && name.find('=') == std::string::npos, "a variable has a name");
    require(no_nul(name) && no_nul(value), "no variable holds a NUL");
  }
  return encode(m);
}

std::string again(const Hold& m) {
  require(is_normal(m.path, true), "a held file's path is absolute and normal");
  require(!m.exec.stdin_piped, "a held program has no input");
  static_cast<void>(again(m.exec));
  require(m.imports.size() <= kMaxImports, "modules to import are few");
  for (const std::string& name : m.imports) {
    require(is_import_name(name) && name.find('/') == name.npos, "a module's name is no path");
  }
  return encode(m);
}

std::string again(const Release& m) {
  require(m.source.size() <= kMaxHeldSource, "what goes through the FIFO fits it");
  return encode(m);
}

std::string again(const Ended& m) {
  require(m.cause == EndCause::exited ? m.exit_code >= 0 && m.exit_code <= 255 : m.exit_code == 0,
          "an exit code is 0 to 255, and there only after an exit");
  require(m.cause == EndCause::signaled ? m.signal >= 1 && m.signal <= 64 : m.signal == 0,
          "a signal is 1 to 64, and there only after one");
  return encode(m);
}

std::string again(const std::vector<WireEntry>& entries) {
  require(!entries.empty(), "a piece of a listing has an entry");
  Writer writer;
  for (const WireEntry& entry : entries) {
    require(entry.name.size() <= kMaxName && !entry.name.empty() && entry.name != "." &&
                entry.name != ".." && no_nul(entry.name) &&
                entry.name.find('/') == std::string::npos,
            "an entry's name is one component");
    append_entry(writer, entry);
  }
  return writer.take();
}

std::string again(const WriteFile& m) { return check(m.file), encode(m); }
std::string again(const ReadFile& m) { return check(m.file), encode(m); }
std::string again(const RemoveFile& m) { return check(m.file), encode(m); }
std::string again(const FilePath& m) { return check(m), encode(m); }
std::string again(const CallOpened& m) { return encode(m); }
std::string again(const CallClosed& m) { return encode(m); }
std::string again(AttachKind m) { return encode(m); }
std::string again(const std::optional<WireEntry>& m) { return encode(m); }

std::string credit_again(std::uint32_t bytes) {
  require(bytes >= 1 && bytes <= kStdinWindow, "a credit is within the window");
  return encode_stdin_taken(bytes);
}

std::string signal_again(int number) {
  require(number >= 1 && number <= 64, "a signal is 1 to 64");
  return encode_signal(number);
}

// The message of that type in its own spelling; nothing for a type that has no message of its own.
std::optional<std::string> spelled_again(FrameType type, std::string_view payload) {
  switch (type) {
    case FrameType::failed:
      return again(decode_failure(payload));
    case FrameType::open_call:
      return again(decode_open_call(payload));
    case FrameType::call_opened:
      return again(decode_call_opened(payload));
    case FrameType::attach:
      return again(decode_attach(payload));
    case FrameType::call_closed:
      return again(decode_call_closed(payload));
    case FrameType::exec:
      return again(decode_exec(payload));
    case FrameType::hold:
      return again(decode_hold(payload));
    case FrameType::release:
      return again(decode_release(payload));
    case FrameType::stdin_taken:
      return credit_again(decode_stdin_taken(payload));
    case FrameType::signal:
      return signal_again(decode_signal(payload));
    case FrameType::ended:
      return again(decode_ended(payload));
    case FrameType::write_file:
      return again(decode_write_file(payload));
    case FrameType::stat_file:
    case FrameType::list_directory:
      return again(decode_file_path(payload));
    case FrameType::read_file:
      return again(decode_read_file(payload));
    case FrameType::remove_file:
      return again(decode_remove_file(payload));
    case FrameType::entry:
      return again(decode_entry(payload));
    case FrameType::entries:
      return again(decode_entries(payload));
    default:
      return std::nullopt;
  }
}

}  // namespace

void fuzz_protocol(std::string_view bytes) {
  Input input(bytes);
  const unsigned type = input.byte();
  const std::string_view payload = input.rest();
  if (payload.size() > kMaxPayload) return;  // no frame carries it
  try {
    const auto spelled = spelled_again(static_cast<FrameType>(type), payload);
    require(!spelled || *spelled == payload, "a message has one spelling");
  } catch (const ProtocolError&) {
    return;
  }
}

}  // namespace casemate::fuzz
