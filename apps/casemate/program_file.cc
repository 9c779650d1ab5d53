#include "apps/casemate/program_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::app {

namespace {

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InvalidArgument(fmt::format("the program '{}' cannot be read: {}", escape_for_display(path),
                                    std::strerror(error)),
                        "name a file with a Python program, or - for standard input");
}

}  // namespace

std::string read_program(const std::string& path, std::uint64_t max_bytes) {
  sys::UniqueFd opened;
  if (path != "-") {
    opened.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!opened) refuse(path, errno);
  }
  const int fd = path == "-" ? STDIN_FILENO : opened.get();
  std::string bytes;
  std::string piece(64 * 1024, '\0');
  for (;;) {
    // One byte more than the cap tells a program that is over it, and no more is ever read.
    const std::uint64_t wanted =
        std::min<std::uint64_t>(piece.size(), max_bytes + 1 - bytes.size());
    const ssize_t count = ::read(fd, piece.data(), wanted);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path, errno);
    if (count == 0) return bytes;
    bytes.append(piece.data(), static_cast<std::size_t>(count));
    if (bytes.size() > max_bytes) {
      throw SandboxTransferCapExceeded(
          fmt::format("the program '{}' has more than {} bytes, the cap of one file that goes in",
                      escape_for_display(path), max_bytes),
          "raise --files-in-limit or make it smaller");
    }
  }
}

}  // namespace casemate::app
