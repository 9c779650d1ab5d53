#include "casemate/egress/record_book.h"

#include <fmt/format.h>

#include <utility>

namespace casemate {
namespace {

// The last place is for the rest.
constexpr std::size_t kKept = kMaxEgressRecords - 1;

}  // namespace

bool EgressRecordBook::is_kept(std::size_t number) { return number < kKept; }

std::size_t EgressRecordBook::begin(EgressRecord record) {
  const std::lock_guard lock(mutex_);
  const std::size_t number = count_++;
  if (is_kept(number)) records_.push_back(std::move(record));
  return number;
}

void EgressRecordBook::finish(std::size_t number, EgressRecord record) {
  const std::lock_guard lock(mutex_);
  if (is_kept(number)) {
    records_[number] = std::move(record);
    return;
  }
  if (record.decision == EgressDecision::allowed) ++more_allowed_;
  more_.bytes_out += record.bytes_out;
  more_.bytes_in += record.bytes_in;
}

std::vector<EgressRecord> EgressRecordBook::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<EgressRecord> all = records_;
  if (count_ > kKept) {
    EgressRecord rest = more_;
    rest.host.assign(1, '*');  // g++ 12 warns of an assignment (-Wrestrict)
    rest.decision = more_allowed_ > 0 ? EgressDecision::allowed : EgressDecision::denied;
    rest.reason =
        fmt::format("{} more decisions, {} of them allowed", count_ - kKept, more_allowed_);
    all.push_back(std::move(rest));
  }
  return all;
}

}  // namespace casemate
