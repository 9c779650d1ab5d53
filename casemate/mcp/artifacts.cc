#include "casemate/mcp/artifacts.h"

#include <fmt/format.h>

#include <charconv>

#include "casemate/base/digest.h"

namespace casemate::mcp {
namespace {

// RFC 3986, section 2.3, and the slash between directories.
std::string percent_encoded(std::string_view name) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string encoded;
  for (const char c : name) {
    if (kPlain.find(c) != kPlain.npos) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::optional<std::uint64_t> read_cursor(const std::string& cursor) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(cursor.data(), cursor.data() + cursor.size(), number);
  if (error != std::errc{} || end != cursor.data() + cursor.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string ArtifactRegistry::publish(const LandedArtifact& artifact, const Owner& owner) {
  PublishedArtifact published{
      fmt::format("casemate://artifact/{}/{}", random_hex(16), percent_encoded(artifact.name)),
      artifact, owner};
  std::string uri = published.uri;
  const std::lock_guard lock(mutex_);
  numbers_.emplace(uri, ++last_);
  by_number_.emplace(last_, std::move(published));
  if (by_number_.size() > kMaxKept) {
    numbers_.erase(by_number_.begin()->second.uri);
    by_number_.erase(by_number_.begin());
  }
  return uri;
}

std::optional<PublishedArtifact> ArtifactRegistry::find(std::string_view uri,
                                                        std::string_view identity) const {
  const std::lock_guard lock(mutex_);
  const auto number = numbers_.find(uri);
  if (number == numbers_.end()) return std::nullopt;
  const PublishedArtifact& found = by_number_.at(number->second);
  if (found.owner.identity != identity) return std::nullopt;
  return found;
}

std::optional<ArtifactRegistry::Page> ArtifactRegistry::list(
    const Owner& owner, bool by_identity, const std::optional<std::string>& cursor) const {
  std::uint64_t behind = 0;
  if (cursor) {
    const auto number = read_cursor(*cursor);
    if (!number) return std::nullopt;
    behind = *number;
  }
  const std::lock_guard lock(mutex_);
  if (behind > last_) return std::nullopt;
  Page page;
  for (auto at = by_number_.upper_bound(behind); at != by_number_.end(); ++at) {
    const Owner& whose = at->second.owner;
    if (whose.identity != owner.identity || (!by_identity && whose.peer != owner.peer)) continue;
    if (page.artifacts.size() == kPage) {
      page.cursor = fmt::format("{}", behind);
      break;
    }
    page.artifacts.push_back(at->second);
    behind = at->first;
  }
  return page;
}

}  // namespace casemate::mcp
