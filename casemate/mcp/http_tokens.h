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
// The file is looked at anew whenever it changed (its inode, size or times), so that a token is
// replaced without a restart. A file that has gone, cannot be read or does not keep these rules
// lets nobody in until it does again, and the log says why. May be used from several threads at
// once.
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
  // Throws `InvalidArgument`.
  std::vector<std::string> read() const;

  const std::string path_;
  const Log log_;
  std::mutex mutex_;
  Stamp stamp_{};
  // SHA-256 of each, in hex: of one length, so that comparing them says nothing of a token's.
  std::vector<std::string> digests_;
};

}  // namespace casemate::mcp
