// The file operations of a call: each over a files connection of its own while it lasts, so that
// several threads do not wait for each other.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"
#include "casemate/guest/agent_call.h"
#include "casemate/sys/memory.h"

namespace casemate::guest {
namespace {

// What a file of more than one frame gets at once: growing step by step would copy all of it again
// and again, and room that is never touched takes no memory.
constexpr std::uint64_t kRoomForMore = std::uint64_t{32} << 20;
// Idle connections a call keeps; each is a process in the guest.
constexpr std::size_t kMaxIdle = 2;

FilePath resolve(std::string_view path, std::string_view working_directory) {
  if (!working_directory.starts_with('/')) {
    throw SandboxPathRefused("the working directory is refused: it is not an absolute guest path");
  }
  FilePath file;
  file.directory = confine_guest_path(working_directory, "/");
  const std::string absolute = confine_guest_path(path, file.directory);
  file.path = guest_path_relative_to(absolute, file.directory).value_or("");
  if (file.directory.size() >= kMaxPath || file.path.size() >= kMaxPath) {
    throw SandboxFileError("a guest path is longer than 4095 bytes", ENAMETOOLONG);
  }
  return file;
}

[[noreturn]] void refuse_directory_itself(std::string_view verb) {
  throw SandboxPathRefused(
      fmt::format("to {} the working directory itself is refused: name something below it", verb));
}

std::string shown(const FilePath& file) {
  return file.path.empty() ? "the working directory"
                           : fmt::format("'{}'", escape_for_display(file.path));
}

EntryKind kind_of(WireKind kind) {
  switch (kind) {
    case WireKind::file:
      return EntryKind::file;
    case WireKind::directory:
      return EntryKind::directory;
    case WireKind::symlink:
      return EntryKind::symlink;
    case WireKind::other:
      break;
  }
  return EntryKind::other;
}

SandboxEntry entry_from(std::string path, const WireEntry& wire_entry) {
  SandboxEntry entry;
  entry.path = std::move(path);
  entry.kind = kind_of(wire_entry.kind);
  if (entry.kind == EntryKind::file) entry.size_bytes = wire_entry.size;
  return entry;
}

}  // namespace

// Gives `talk` a connection. It goes back to the idle ones only when the conversation ended where
// the next can begin; after anything else its state is unknown and it is dropped.
template <typename Talk>
auto AgentCall::with_files(const CallControl& control, Talk talk) {
  if (control.stop.stop_requested()) {
    throw SandboxCancelled("the call was cancelled by its caller");
  }
  if (parts_->ready) parts_->ready->expect_files();
  std::unique_ptr<Connection> connection;
  {
    const std::lock_guard lock(files_mutex_);
    if (!idle_files_.empty()) {
      connection = std::move(idle_files_.back());
      idle_files_.pop_back();
    }
  }
  if (connection && !is_silent(connection->descriptor())) connection.reset();
  if (!connection) {
    connection =
        std::make_unique<Connection>(attach(AttachKind::files, control), parts_->timing.silence);
  }
  const auto keep = [&] {
    const std::lock_guard lock(files_mutex_);
    if (idle_files_.size() < kMaxIdle) idle_files_.push_back(std::move(connection));
  };
  try {
    auto result = talk(*connection);
    keep();
    return result;
  } catch (const ProtocolError& error) {
    throw_guest_lied(error.what());
  } catch (const SandboxPathRefused&) {
    keep();
    throw;
  } catch (const SandboxFileError&) {
    keep();
    throw;
  } catch (const SandboxTransferCapExceeded&) {
    keep();
    throw;
  }
}

void AgentCall::fail(const Failure& failure, const FilePath& file, std::string_view verb) {
  switch (failure.reason) {
    case FailureReason::errno_value:
      throw SandboxFileError(fmt::format("cannot {} {} in the sandbox: {}", verb, shown(file),
                                         std::generic_category().message(failure.error)),
                             failure.error);
    case FailureReason::path_refused:
      throw SandboxPathRefused(
          fmt::format("to {} a path that is or leads through a link is refused", verb),
          "name the file itself");
    case FailureReason::over_cap:
      throw SandboxTransferCapExceeded(
          fmt::format("{} is over the cap of what may be taken at once", shown(file)));
    case FailureReason::no_resources:
      throw SandboxUnavailable(fmt::format("the sandbox could not provide for a file operation: {}",
                                           std::generic_category().message(failure.error)));
    case FailureReason::directory:
      break;
  }
  throw ProtocolError("a file operation that failed for a reason of programs");
}

void AgentCall::write_file(std::string_view path, std::span<const char> content,
                           std::string_view working_directory, const CallControl& control) {
  const FilePath file = resolve(path, working_directory);
  if (file.path.empty()) refuse_directory_itself("write");
  if (keep_source(path, content, working_directory)) return;
  leave_held_alone(file, control);
  with_files(control, [&](Connection& connection) {
    connection.put(FrameType::write_file, encode(WriteFile{file, content.size()}));
    for (std::span<const char> rest = content; !rest.empty();) {
      const std::size_t size = std::min(rest.size(), kMaxData);
      connection.put(FrameType::data, {rest.data(), size});
      connection.flush(control);
      rest = rest.subspan(size);
    }
    connection.put(FrameType::end);
    connection.flush(control);
    const Frame answer = connection.receive(control);
    if (is(answer, FrameType::failed)) fail(decode_failure(answer.payload), file, "write");
    if (!is(answer, FrameType::done)) throw ProtocolError("no answer to write_file");
    expect_empty(answer);
    return true;
  });
}

std::optional<SandboxEntry> AgentCall::stat_file(std::string_view path,
                                                 std::string_view working_directory,
                                                 const CallControl& control) {
  const FilePath file = resolve(path, working_directory);
  leave_held_alone(file, control);
  return with_files(control, [&](Connection& connection) -> std::optional<SandboxEntry> {
    connection.put(FrameType::stat_file, encode(file));
    connection.flush(control);
    const Frame answer = connection.receive(control);
    if (is(answer, FrameType::failed)) fail(decode_failure(answer.payload), file, "look at");
    if (!is(answer, FrameType::entry)) throw ProtocolError("no answer to stat_file");
    const std::optional<WireEntry> found = decode_entry(answer.payload);
    if (!found) return std::nullopt;
    return entry_from(file.path, *found);
  });
}

std::string AgentCall::read_file(std::string_view path, std::string_view working_directory,
                                 std::uint64_t max_bytes, const CallControl& control) {
  const FilePath file = resolve(path, working_directory);
  leave_held_alone(file, control);
  return with_files(control, [&](Connection& connection) {
    connection.put(FrameType::read_file, encode(ReadFile{file, max_bytes}));
    connection.flush(control);
    std::string content;
    while (true) {
      Frame answer = connection.receive(control);
      if (is(answer, FrameType::failed)) {
        const Failure failure = decode_failure(answer.payload);
        if (failure.reason == FailureReason::over_cap) {
          throw SandboxTransferCapExceeded(fmt::format(
              "{} is larger than the {} bytes that may be read", shown(file), max_bytes));
        }
        fail(failure, file, "read");
      }
      if (is(answer, FrameType::end)) {
        expect_empty(answer);
        return content;
      }
      if (!is(answer, FrameType::data)) throw ProtocolError("no answer to read_file");
      expect_data(answer);
      if (answer.payload.size() > max_bytes - content.size()) {
        throw ProtocolError("more of a file than was asked for");
      }
      if (content.empty() && answer.payload.size() == kMaxData) {
        content.reserve(std::min(max_bytes, kRoomForMore));
        sys::prefer_huge_pages({content.data(), content.capacity()});
      }
      content += answer.payload;
      connection.reuse(std::move(answer.payload));
    }
  });
}

void AgentCall::remove(std::string_view path, std::string_view working_directory,
                       Recursive recursive, const CallControl& control) {
  const FilePath file = resolve(path, working_directory);
  if (file.path.empty()) refuse_directory_itself("remove");
  leave_held_alone(file, control);
  with_files(control, [&](Connection& connection) {
    connection.put(FrameType::remove_file, encode(RemoveFile{file, recursive == Recursive::yes}));
    connection.flush(control);
    const Frame answer = connection.receive(control);
    if (is(answer, FrameType::failed)) fail(decode_failure(answer.payload), file, "remove");
    if (!is(answer, FrameType::done)) throw ProtocolError("no answer to remove_file");
    expect_empty(answer);
    return true;
  });
}

std::vector<SandboxEntry> AgentCall::list_dir(std::string_view path,
                                              std::string_view working_directory,
                                              const CallControl& control) {
  const FilePath file = resolve(path, working_directory);
  leave_held_alone(file, control);
  return with_files(control, [&](Connection& connection) {
    connection.put(FrameType::list_directory, encode(file));
    connection.flush(control);
    std::vector<SandboxEntry> entries;
    while (true) {
      const Frame answer = connection.receive(control);
      if (is(answer, FrameType::failed)) {
        const Failure failure = decode_failure(answer.payload);
        if (failure.reason == FailureReason::over_cap) {
          throw SandboxTransferCapExceeded(
              fmt::format("{} has more than {} entries", shown(file), kMaxEntries));
        }
        fail(failure, file, "list");
      }
      if (is(answer, FrameType::end)) {
        expect_empty(answer);
        break;
      }
      if (!is(answer, FrameType::entries)) throw ProtocolError("no answer to list_directory");
      for (const WireEntry& found : decode_entries(answer.payload)) {
        if (entries.size() == kMaxEntries) throw ProtocolError("more entries than the cap");
        const std::string prefix = file.path.empty() ? "" : file.path + "/";
        entries.push_back(entry_from(prefix + found.name, found));
      }
    }
    std::sort(entries.begin(), entries.end(),
              [](const SandboxEntry& a, const SandboxEntry& b) { return a.path < b.path; });
    return entries;
  });
}

namespace {

// Of what an archive or its unpacking met; the path is the guest's word.
[[noreturn]] void fail_archive(const Failure& failure, std::string_view verb) {
  if (failure.reason == FailureReason::no_resources) {
    throw SandboxUnavailable(fmt::format("the sandbox could not {} its files: {}", verb,
                                         std::generic_category().message(failure.error)));
  }
  if (failure.reason != FailureReason::errno_value && failure.reason != FailureReason::path_refused)
    throw ProtocolError("an archive that failed for a reason of other operations");
  if (failure.error == EBADMSG) {
    throw SandboxUnavailable("the snapshot is not whole, or no guest of this build wrote it",
                             "take another");
  }
  const int error = failure.reason == FailureReason::path_refused ? ELOOP : failure.error;
  throw SandboxFileError(
      fmt::format("cannot {} '{}' of the sandbox: {}", verb, escape_for_display(failure.text),
                  std::generic_category().message(error)),
      error, error == ENOSPC ? "it holds more than the sandbox's disk bound" : "remove that file");
}

// What never blocks is stopped too: a guest that is quick is as long at it as it likes.
void check_going_on(const CallControl& control) {
  if (control.stop.stop_requested()) {
    throw SandboxCancelled("the call was cancelled by its caller");
  }
  if (control.deadline && std::chrono::steady_clock::now() >= *control.deadline) {
    throw_timed_out(control);
  }
}

}  // namespace

void AgentCall::archive(std::uint64_t max_bytes, const std::function<void(std::string_view)>& put,
                        const CallControl& control) {
  with_files(control, [&](Connection& connection) {
    connection.put(FrameType::archive);
    connection.flush(control);
    for (std::uint64_t left = max_bytes;;) {
      const Frame answer = connection.receive(control);
      if (is(answer, FrameType::failed)) fail_archive(decode_failure(answer.payload), "keep");
      if (is(answer, FrameType::end)) {
        expect_empty(answer);
        return true;
      }
      if (!is(answer, FrameType::data)) throw ProtocolError("no answer to archive");
      expect_data(answer);
      if (answer.payload.size() > left) throw ProtocolError("more files than its disk can hold");
      left -= answer.payload.size();
      put(answer.payload);
      check_going_on(control);
    }
  });
}

void AgentCall::unpack(const std::function<std::string()>& next, const CallControl& control) {
  with_files(control, [&](Connection& connection) {
    connection.put(FrameType::unpack);
    for (std::string piece = next(); !piece.empty(); piece = next()) {
      connection.put(FrameType::data, piece);
      connection.flush(control);
      check_going_on(control);
    }
    connection.put(FrameType::end);
    connection.flush(control);
    const Frame answer = connection.receive(control);
    if (is(answer, FrameType::failed)) fail_archive(decode_failure(answer.payload), "put back");
    if (!is(answer, FrameType::done)) throw ProtocolError("no answer to unpack");
    expect_empty(answer);
    return true;
  });
}

}  // namespace casemate::guest
