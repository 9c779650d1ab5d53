#pragma once

// Names to addresses, on the host, without anybody waiting longer than they want to.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "casemate/egress/ip_address.h"

namespace casemate {

// The addresses of a name (canonical, without a trailing dot), in the order they are to be tried;
// empty: it has none. Blocks; called from several threads at once, and possibly left to itself,
// with `stop` requested, when nobody waits any more: whatever it uses has to live as long. What it
// throws means that the name cannot be resolved.
using EgressResolver =
    std::function<std::vector<IpAddress>(const std::string& name, std::stop_token stop)>;

// This machine's own (getaddrinfo): its hosts file, its name servers, its search list. It cannot be
// stopped; its own bounds are resolv.conf's.
EgressResolver system_resolver();

// Threads for look-ups, made as they are needed, at most this many.
inline constexpr std::size_t kMaxResolverThreads = 8;
// Look-ups that wait for one of them.
inline constexpr std::size_t kMaxWaitingNames = 1024;
// Addresses of one name that are looked at.
inline constexpr std::size_t kMaxAddresses = 16;

// Runs look-ups. A thread in one that hangs is left to itself when the pool goes.
class ResolverPool {
 public:
  struct Result {
    std::vector<IpAddress> addresses{};
    // It failed, and how.
    std::optional<std::string> failure{};
  };
  using Done = std::function<void(Result)>;

  explicit ResolverPool(EgressResolver resolver);
  // Never waits.
  ~ResolverPool();
  ResolverPool(const ResolverPool&) = delete;
  ResolverPool& operator=(const ResolverPool&) = delete;

  // Calls `done` on a thread of the pool, unless the pool goes first; then it may be called still,
  // so it must hold what it uses. False: too many wait, or no thread can be made and none is there.
  bool resolve(std::string name, Done done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace casemate
