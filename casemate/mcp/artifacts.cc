#include "casemate/mcp/artifacts.h"

#include <fmt/format.h>

#include <algorithm>

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

constexpr std::string_view kBefore = "casemate://artifact/";
constexpr std::size_t kRandomBytes = 16;

std::string_view random_part(std::string_view uri) {
  return uri.substr(kBefore.size(), 2 * kRandomBytes);
}

}  // namespace

std::string ArtifactRegistry::publish(const LandedArtifact& artifact, const Owner& owner) {
  PublishedArtifact published{
      fmt::format("{}{}/{}", kBefore, random_hex(kRandomBytes), percent_encoded(artifact.name)),
      artifact, owner};
  std::string uri = published.uri;
  const std::lock_guard lock(mutex_);
  numbers_.emplace(uri, ++last_);
  by_number_.emplace(last_, std::move(published));
  ++counts_[owner.identity];
  if (by_number_.size() > kMaxKept) forget_one();
  return uri;
}

void ArtifactRegistry::forget_one() {
  const auto most =
      std::ranges::max_element(counts_, {}, [](const auto& entry) { return entry.second; });
  const auto oldest = std::ranges::find_if(by_number_, [&most](const auto& entry) {
    return entry.second.owner.identity == most->first;
  });
  numbers_.erase(oldest->second.uri);
  by_number_.erase(oldest);
  if (--most->second == 0) counts_.erase(most);
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
  const auto is_theirs = [&](const Owner& whose) {
    return whose.identity == owner.identity && (by_identity || whose.peer == owner.peer);
  };
  const std::lock_guard lock(mutex_);
  std::uint64_t behind = 0;
  if (cursor) {
    // The addresses are in order, so that those of one random part stand together.
    const auto found = numbers_.lower_bound(std::string(kBefore) + *cursor + '/');
    if (found == numbers_.end() || random_part(found->first) != *cursor ||
        !is_theirs(by_number_.at(found->second).owner)) {
      return std::nullopt;
    }
    behind = found->second;
  }
  Page page;
  for (auto at = by_number_.upper_bound(behind); at != by_number_.end(); ++at) {
    if (!is_theirs(at->second.owner)) continue;
    if (page.artifacts.size() == kPage) {
      page.cursor = random_part(page.artifacts.back().uri);
      break;
    }
    page.artifacts.push_back(at->second);
  }
  return page;
}

}  // namespace casemate::mcp
