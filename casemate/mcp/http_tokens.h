#pragma once

// Who may use an HTTP server: the bearer tokens of a file.

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"

namespace casemate::mcp {

// Tokens shorter than this are refused: 128 bits in base64.
inline constexpr std::size_t kShortestToken = 22;

// One token a line; empty lines and lines that begin with # do not count. Each token is a caller of
// his own: what one began, another cannot find. A token is 22 to 512 visible ASCII characters.
//
// The file is read anew whenever it changed (its inode, size or times), so that a token is replaced
// without a restart; and each time while its last change is so young that another might leave the
// same times. A file that has gone, cannot be read or does not keep these rules lets nobody in; it
// is tried again at the next request, and the log says why once. May be used from several threads
// at once.
//
// Comparison takes the same time whatever the tokens have in common. It does not hide how many
// tokens there are.
class TokenFile {
 public:
  // Throws `InvalidArgument` for a file that cannot be used: a server must not start only to refuse
  // everybody.
  TokenFile(std::string path, Log log);

  // The caller whose token this is, under a name that tells nothing of the token; empty for nobody.
  std::optional<std::string> caller_of(std::string_view token);

 private:
  // What tells one state of the file from another: device, inode, size, both times.
  using Stamp = std::array<long, 7>;
  Stamp look() const;
  // Reads `digests_`, and remembers of which state of the file they are if that is certain. Throws
  // `InvalidArgument`.
  void load();
  std::vector<std::string> read() const;

  const std::string path_;
  const Log log_;
  std::mutex mutex_;
  // Empty: the file is to be read.
  std::optional<Stamp> stamp_{};
  // Why it could not be, if it could not the last time.
  std::string refused_{};
  // SHA-256 of each, in hex: of one length, so that comparing them says nothing of a token's.
  std::vector<std::string> digests_;
};

}  // namespace casemate::mcp
