#include "casemate/transfer/read_regular.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/sys/beneath.h"

namespace casemate {

const int kOpenToLook = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

SandboxTransferCapExceeded over_read_cap(std::string_view subject, std::uint64_t max_bytes) {
  return SandboxTransferCapExceeded(
      fmt::format("file \"{}\" is larger than {} bytes, the most that may be read of it",
                  escape_for_display(subject), max_bytes),
      "share a smaller file, or raise the limit on files in");
}

SandboxFileError file_refusal(std::string_view subject, int error_number) {
  const std::string shown = escape_for_display(subject);
  if (error_number == ENXIO) {  // what opening a socket gives
    return SandboxFileError(
        fmt::format("file \"{}\" is no regular file (a FIFO, a device or a socket); only regular "
                    "files can be shared",
                    shown),
        EINVAL);
  }
  return SandboxFileError(fmt::format("file \"{}\" cannot be read: {}", shown,
                                      std::generic_category().message(error_number)),
                          error_number);
}

std::string read_regular(const sys::UniqueFd& fd, std::string_view subject,
                         std::uint64_t max_bytes) {
  try {
    const struct stat status = sys::status_of(fd.get());
    if (S_ISDIR(status.st_mode)) {
      throw file_refusal(subject, EISDIR);
    }
    if (!S_ISREG(status.st_mode)) {
      throw file_refusal(subject, ENXIO);
    }
    // A size over the cap is enough; a size under it is only what the file had a moment ago.
    if (static_cast<std::uint64_t>(status.st_size) > max_bytes) {
      throw over_read_cap(subject, max_bytes);
    }
    auto content = sys::read_at_most(fd.get(), max_bytes);
    if (!content) {
      throw over_read_cap(subject, max_bytes);
    }
    return *std::move(content);
  } catch (const std::system_error& error) {
    throw file_refusal(subject, error.code().value());
  }
}

}  // namespace casemate
