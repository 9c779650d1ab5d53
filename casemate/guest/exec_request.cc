#include "casemate/guest/exec_request.h"

#include <fmt/format.h>

#include <cerrno>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"
#include "casemate/guest/protocol.h"

namespace casemate::guest {
namespace {

void check_word(std::string_view what, std::string_view text) {
  if (text.find('\0') == std::string_view::npos) return;
  throw InvalidArgument(fmt::format("{} of a program holds a NUL byte", what));
}

[[noreturn]] void refuse_size() {
  throw SandboxFileError(
      "the program's arguments and environment are too long: at most 128 KiB each and 1 MiB in all",
      E2BIG, "hand over large data as a file or on standard input");
}

}  // namespace

std::string encode_request(const ExecRequest& request, const std::string& work,
                           const std::map<std::string, std::string>& image_environment) {
  check_lifetime(request);
  Exec message;
  if (const auto* line = std::get_if<ShellLine>(&request.command)) {
    message.argv = {"/bin/sh", "-c", line->line};
  } else {
    message.argv = std::get<Argv>(request.command).words;
  }
  if (message.argv.empty()) {
    throw InvalidArgument("a program's argv is empty: it needs the program's name at least");
  }
  for (const std::string& word : message.argv) check_word("an argument", word);
  for (const auto& [name, value] : request.environment) {
    if (name.empty() || name.find('=') != std::string::npos) {
      throw InvalidArgument(
          fmt::format("the environment name '{}' is refused: it is empty or holds '='",
                      escape_for_display(name)));
    }
    check_word("an environment name", name);
    check_word("an environment value", value);
    message.environment.emplace_back(name, value);
  }
  for (const auto& [name, value] : image_environment) {
    if (!request.environment.contains(name)) message.environment.emplace_back(name, value);
  }
  const std::string joined =
      request.directory.starts_with('/') ? request.directory : work + "/" + request.directory;
  message.directory = confine_guest_path(joined, "/");
  if (message.directory.size() >= kMaxPath) {
    throw SandboxFileError("the program's directory is longer than 4095 bytes", ENAMETOOLONG);
  }
  message.stdin_piped = request.stdin_mode != StdinMode::empty;
  if (request.timeout) {
    if (request.timeout->count() <= 0) {
      throw InvalidArgument("a program's timeout is refused: it is not above 0");
    }
    message.timeout_ns = static_cast<std::uint64_t>(request.timeout->count());
  }
  if (request.stdin_mode == StdinMode::forwarded && request.stdin_descriptor < 0) {
    throw InvalidArgument("forwarded input needs an open stdin_descriptor");
  }
  // What the decoder takes, so that the guest is never asked for what it must refuse.
  try {
    std::string payload = encode(message);
    decode_exec(payload);
    return payload;
  } catch (const std::length_error&) {
    refuse_size();
  } catch (const ProtocolError&) {
    refuse_size();
  }
}

}  // namespace casemate::guest
