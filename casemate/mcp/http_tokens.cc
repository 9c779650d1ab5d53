#include "casemate/mcp/http_tokens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/file.h"

namespace casemate::mcp {
namespace {

constexpr std::size_t kLongestToken = 512;
constexpr std::size_t kMaxTokens = 64;
constexpr std::size_t kMaxFileBytes = 64 * 1024;
// Of the digest that names a caller: enough to tell callers apart, too little to find the token.
constexpr std::size_t kCallerDigits = 16;
// File systems keep times in steps of up to two seconds (FAT).
constexpr long kCertainAfterSeconds = 3;

bool is_token(std::string_view text) {
  return text.size() >= kShortestToken && text.size() <= kLongestToken &&
         std::ranges::all_of(text, [](char each) { return each > ' ' && each < 0x7f; });
}

// The caller's name must not be what tokens are compared by.
std::string name_of(std::string_view digest) {
  return sha256_hex("caller " + std::string(digest)).substr(0, kCallerDigits);
}

}  // namespace

TokenFile::TokenFile(std::string path, Log log) : path_(std::move(path)), log_(std::move(log)) {
  load();
}

void TokenFile::load() {
  stamp_.reset();
  digests_.clear();
  const Stamp before = look();
  digests_ = read();
  if (look() != before) return;  // one of several states: it is read again at the next request
  const auto changed = std::max(before[3], before[5]);
  if (std::time(nullptr) - changed > kCertainAfterSeconds) stamp_ = before;
}

TokenFile::Stamp TokenFile::look() const {
  struct stat status{};
  if (stat(path_.c_str(), &status) != 0) return {};
  return {static_cast<long>(status.st_dev),
          static_cast<long>(status.st_ino),
          status.st_size,
          status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec,
          status.st_ctim.tv_sec,
          status.st_ctim.tv_nsec};
}

std::vector<std::string> TokenFile::read() const {
  const std::string shown = escape_for_display(path_);
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(fmt::format("token file '{}' {}", shown, what),
                          fmt::format("one token of {} to {} visible ASCII characters a line, for "
                                      "example from `openssl rand -base64 32`",
                                      kShortestToken, kLongestToken));
  };
  std::string text;
  try {
    struct stat status{};
    if (stat(path_.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) != 0 &&
        S_ISREG(status.st_mode)) {
      refuse("may be written by everybody");
    }
    text = sys::read_file_at(AT_FDCWD, path_.c_str(), kMaxFileBytes);
  } catch (const std::system_error& failure) {
    refuse(fmt::format("cannot be read: {}", failure.code().message()));
  }
  std::vector<std::string> digests;
  std::string_view rest = text;
  for (std::size_t line = 1; !rest.empty(); ++line) {
    auto token = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(token.size() + 1, rest.size()));
    if (token.ends_with('\r')) token.remove_suffix(1);
    if (token.empty() || token.starts_with('#')) continue;
    if (!is_token(token)) refuse(fmt::format("has no token in line {}", line));
    if (digests.size() == kMaxTokens) refuse(fmt::format("has more than {} tokens", kMaxTokens));
    digests.push_back(sha256_hex(token));
  }
  if (digests.empty()) refuse("holds no token");
  return digests;
}

std::optional<std::string> TokenFile::caller_of(std::string_view token) {
  const std::lock_guard lock(mutex_);
  if (!stamp_ || look() != *stamp_) {
    try {
      load();
      refused_.clear();
    } catch (const InvalidArgument& refusal) {
      if (refused_ != refusal.message()) {
        write_log(log_, LogLevel::error, fmt::format("{}; nobody is let in", refusal.message()));
      }
      refused_ = refusal.message();
    }
  }
  const std::string digest = sha256_hex(token);
  std::optional<std::string> caller;
  for (const std::string& known : digests_) {
    if (CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0) caller = name_of(known);
  }
  return caller;
}

}  // namespace casemate::mcp
