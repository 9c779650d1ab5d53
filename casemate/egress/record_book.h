#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "casemate/core/egress.h"

namespace casemate {

// What was decided for one call, in order. Bounded by `kMaxEgressRecords`, and so that nobody hides
// behind a flood: refusals and connections have places of their own, and a connection that finds
// none is added to an earlier one of the same host and port. The last record counts what was added
// nowhere. From any thread.
class EgressRecordBook {
 public:
  // Refusals with a record of their own; connections have the other places but the last.
  static constexpr std::size_t kRefusals = kMaxEgressRecords / 2;
  static constexpr std::size_t kConnections = kMaxEgressRecords - kRefusals - 1;

  struct Place {
    enum class Kind : std::uint8_t { own, added, counted };
    Kind kind = Kind::counted;
    std::size_t index = 0;
  };

  Place begin(const EgressRecord& record);
  // What became of it, once. One with a place of its own is replaced, but for the bytes that were
  // added to it; one that was let through, added to another and then cut off is a refusal of its
  // own.
  void finish(const Place& place, const EgressRecord& record);

  std::vector<EgressRecord> records() const;

 private:
  mutable std::mutex mutex_;
  std::vector<EgressRecord> records_;
  std::size_t refusals_ = 0;
  std::size_t connections_ = 0;
  std::size_t counted_ = 0;
  std::size_t counted_allowed_ = 0;
  EgressRecord rest_;
};

}  // namespace casemate
