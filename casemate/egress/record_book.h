#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "casemate/core/egress.h"

namespace casemate {

// What was decided for one call, in order. Bounded: of more than `kMaxEgressRecords` decisions the
// last record counts those that have none of their own. From any thread.
class EgressRecordBook {
 public:
  // Returns what `finish` is given.
  std::size_t begin(EgressRecord record);
  // What became of it: `record` replaces the one that was begun.
  void finish(std::size_t number, EgressRecord record);
  // Whether that decision has a record of its own.
  static bool is_kept(std::size_t number);

  std::vector<EgressRecord> records() const;

 private:
  mutable std::mutex mutex_;
  std::vector<EgressRecord> records_;
  std::size_t count_ = 0;
  std::size_t more_allowed_ = 0;
  EgressRecord more_;
};

}  // namespace casemate
