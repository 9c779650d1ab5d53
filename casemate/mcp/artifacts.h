#pragma once

// What landed, by the addresses that clients were given.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/transfer/sink.h"

namespace casemate::mcp {

// Who may see something. `identity` is what a transport knows of a caller (a token's digest, the
// process for stdio), `peer` the one connection or session.
struct Owner {
  std::string identity;
  std::uint64_t peer = 0;
};

struct PublishedArtifact {
  // "casemate://artifact/", 32 random hex digits, the name. The digits are what lets one read it.
  std::string uri;
  LandedArtifact artifact;
  Owner owner;
};

// May be used from several threads.
class ArtifactRegistry {
 public:
  // Over so many, of all callers, the oldest of the identity that has most is forgotten: its
  // address leads nowhere. So one who lands much does not push out what others landed.
  static constexpr std::size_t kMaxKept = 4096;
  static constexpr std::size_t kPage = 100;

  std::string publish(const LandedArtifact& artifact, const Owner& owner);

  // By the whole address, for a caller of the same identity only. Absent also for an address that
  // is another's.
  std::optional<PublishedArtifact> find(std::string_view uri, std::string_view identity) const;

  struct Page {
    std::vector<PublishedArtifact> artifacts;
    // For the next page; absent at the end.
    std::optional<std::string> cursor;
  };
  // In the order in which they landed: those of the identity, or of the one peer. A cursor is the
  // random part of an address that was on the page before, and so tells nothing of others. Absent
  // for one that was never given, or whose artifact has been forgotten since.
  std::optional<Page> list(const Owner& owner, bool by_identity,
                           const std::optional<std::string>& cursor) const;

 private:
  void forget_one();

  mutable std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, PublishedArtifact> by_number_;
  std::map<std::string, std::uint64_t, std::less<>> numbers_;
  // How many of each identity.
  std::map<std::string, std::size_t, std::less<>> counts_;
};

}  // namespace casemate::mcp
