#include "casemate/egress/descriptor_budget.h"

#include <sys/resource.h>

#include <limits>
#include <utility>

namespace casemate {
namespace {

constexpr std::size_t kMostOfTheRest = 2;

std::size_t half_of_the_limit() {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::size_t>::max();
  }
  return descriptors.rlim_cur / 2;
}

}  // namespace

DescriptorBudget::DescriptorBudget(Most most) : most_(std::move(most)) {}

const std::shared_ptr<DescriptorBudget>& DescriptorBudget::of_this_process() {
  static const auto kBudget = std::make_shared<DescriptorBudget>(half_of_the_limit);
  return kBudget;
}

bool DescriptorBudget::take(std::size_t own) {
  const std::size_t places = most_() / kOfATunnel;
  std::size_t taken = taken_;
  do {
    if (taken >= places || own / kMostOfTheRest >= places - taken) return false;
  } while (!taken_.compare_exchange_weak(taken, taken + 1));
  return true;
}

void DescriptorBudget::give_back() noexcept { --taken_; }

}  // namespace casemate
