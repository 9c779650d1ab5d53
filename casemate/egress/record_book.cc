#include "casemate/egress/record_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace casemate {

using Kind = EgressRecordBook::Place::Kind;

EgressRecordBook::Place EgressRecordBook::begin(const EgressRecord& record) {
  const std::lock_guard lock(mutex_);
  const bool allowed = record.decision == EgressDecision::allowed;
  std::size_t& taken = allowed ? connections_ : refusals_;
  if (taken < (allowed ? kConnections : kRefusals)) {
    ++taken;
    records_.push_back(record);
    records_.back().bytes_out = records_.back().bytes_in = 0;  // `finish` says them
    return {Kind::own, records_.size() - 1};
  }
  if (allowed) {
    const auto same = std::ranges::find_if(records_, [&](const EgressRecord& earlier) {
      return earlier.decision == EgressDecision::allowed && earlier.host == record.host &&
             earlier.port == record.port;
    });
    if (same != records_.end()) {
      return {Kind::added, static_cast<std::size_t>(same - records_.begin())};
    }
    ++counted_allowed_;
  }
  ++counted_;
  return {Kind::counted, 0};
}

void EgressRecordBook::finish(const Place& place, const EgressRecord& record) {
  const std::lock_guard lock(mutex_);
  if (place.kind == Kind::own) {
    EgressRecord& own = records_[place.index];
    // What was added to it meanwhile stays.
    const std::uint64_t out = own.bytes_out;
    const std::uint64_t in = own.bytes_in;
    own = record;
    own.bytes_out += out;
    own.bytes_in += in;
    return;
  }
  // One that was let through and then cut off is a refusal of its own, whoever it was added to.
  if (place.kind == Kind::added && record.decision == EgressDecision::denied) {
    if (refusals_ < kRefusals) {
      ++refusals_;
      records_.push_back(record);
      return;
    }
    ++counted_;
    rest_.bytes_out += record.bytes_out;
    rest_.bytes_in += record.bytes_in;
    return;
  }
  EgressRecord& sum = place.kind == Kind::added ? records_[place.index] : rest_;
  sum.bytes_out += record.bytes_out;
  sum.bytes_in += record.bytes_in;
}

std::vector<EgressRecord> EgressRecordBook::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<EgressRecord> all = records_;
  if (counted_ > 0) {
    EgressRecord rest = rest_;
    rest.host.assign(1, '*');  // g++ 12 warns of an assignment (-Wrestrict)
    rest.decision = counted_allowed_ > 0 ? EgressDecision::allowed : EgressDecision::denied;
    rest.reason = fmt::format("{} more decisions, {} of them allowed", counted_, counted_allowed_);
    all.push_back(std::move(rest));
  }
  return all;
}

}  // namespace casemate
