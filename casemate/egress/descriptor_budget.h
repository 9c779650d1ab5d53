#pragma once

// Descriptors are a process's, so what its calls' tunnels take is counted over all of them.

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

namespace casemate {

// Places for tunnels, shared by the calls of a process. From any thread; a forked child has a copy.
class DescriptorBudget {
 public:
  // Of one tunnel at most: two sockets, and in each direction a pipe while it is held up.
  static constexpr std::size_t kOfATunnel = 6;

  // How many descriptors all tunnels together may have. Asked at each tunnel.
  using Most = std::function<std::size_t()>;
  explicit DescriptorBudget(Most most);

  // The one that every call of this process counts in unless its options name another: half of what
  // the process may have at that moment (`ulimit -n`), the other half is for everything else. The
  // only state of this library that is the process's, because what it counts is.
  static const std::shared_ptr<DescriptorBudget>& of_this_process();

  // Takes a place for a call that has `own` of them already. False: there is none, or the call has
  // twice as many as are left for all. So no call has more than two thirds, and there is always
  // room for a call that has few.
  bool take(std::size_t own);
  void give_back() noexcept;

 private:
  const Most most_;
  std::atomic<std::size_t> taken_ = 0;
};

}  // namespace casemate
