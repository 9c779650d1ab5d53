#include "casemate/backends/docker/attached_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "casemate/base/utf8.h"

namespace casemate::docker {
namespace {

constexpr std::size_t kHeaderBytes = 8;
constexpr char kOutput = 1;
constexpr char kError = 2;
// Of one exec's errors.
constexpr std::size_t kMostTold = 4096;

}  // namespace

AttachedOutput::AttachedOutput(Log log) : log_(std::move(log)) {}

bool AttachedOutput::receive(std::string_view bytes, std::string& output) {
  while (!bytes.empty()) {
    if (left_ > 0) {
      const std::string_view piece = bytes.substr(0, left_);
      bytes.remove_prefix(piece.size());
      left_ -= static_cast<std::uint32_t>(piece.size());
      if (is_error_) {
        tell(piece);
      } else {
        output += piece;
      }
      continue;
    }
    const std::string_view more = bytes.substr(0, kHeaderBytes - header_.size());
    bytes.remove_prefix(more.size());
    header_ += more;
    if (header_.size() < kHeaderBytes) return true;
    if ((header_[0] != kOutput && header_[0] != kError) || header_[1] != 0 || header_[2] != 0 ||
        header_[3] != 0) {
      tell("what the engine sends of an exec is in no format that is known here");
      return false;
    }
    is_error_ = header_[0] == kError;
    for (std::size_t i = 4; i < kHeaderBytes; ++i) {
      left_ = left_ << 8U | static_cast<unsigned char>(header_[i]);
    }
    header_.clear();
  }
  return true;
}

void AttachedOutput::tell(std::string_view what) {
  what = what.substr(0, kMostTold - std::min(told_, kMostTold));
  if (what.empty()) return;
  told_ += what.size();
  write_log(log_, LogLevel::warning,
            fmt::format("docker: beside a sandbox: {}", escape_for_display(what, kMostTold)));
}

}  // namespace casemate::docker
