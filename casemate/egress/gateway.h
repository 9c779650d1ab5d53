#pragma once

// The host's side of a call's egress: takes what comes over the call's socket, decides, resolves,
// dials, and moves the bytes.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/egress.h"
#include "casemate/egress/descriptor_budget.h"
#include "casemate/egress/resolver.h"
#include "casemate/sys/owner_process.h"

namespace casemate {

struct EgressOptions {
  std::vector<HostPattern> allow{};
  ServerNameCheck server_names = ServerNameCheck::yes;
  // Empty: `system_resolver()`.
  EgressResolver resolver{};
  // One line a decision, with what came of it.
  Log log{};
  // What the log calls it.
  std::string call{};

  // Connections at a time, those that are not decided yet among them. What comes too many is
  // answered `too_many`.
  std::size_t max_tunnels = 1024;
  // What these tunnels count in besides, with those of other calls. Empty: all calls of this
  // process, which leave it half of its descriptors (descriptor_budget.h).
  std::shared_ptr<DescriptorBudget> descriptors{};
  // For what the kernel holds of bytes that an end does not take, over all tunnels of the call.
  // While it lasts a tunnel has up to 256 KiB in each of its three buffers, towards its end less,
  // and in any case 16 KiB. The kernel's own book-keeping takes up to as much again. What a
  // connection can move in a round trip is about one of these buffers.
  std::uint64_t max_buffers = std::uint64_t{48} << 20;
  // Over all tunnels of the call, from the program and to it. More than that cuts a tunnel off.
  std::uint64_t max_bytes_out = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t max_bytes_in = std::numeric_limits<std::uint64_t>::max();

  // From the connection to a whole request.
  std::chrono::nanoseconds request_patience = std::chrono::seconds(10);
  // For a name.
  std::chrono::nanoseconds resolve_patience = std::chrono::seconds(10);
  // For one address, and for all of a name together.
  std::chrono::nanoseconds address_patience = std::chrono::seconds(5);
  std::chrono::nanoseconds dial_patience = std::chrono::seconds(20);
  // From a TLS client's first byte to its whole hello.
  std::chrono::nanoseconds hello_patience = std::chrono::seconds(10);
  // With nothing moving in either direction.
  std::chrono::nanoseconds idle_patience = std::chrono::minutes(10);
  // Of a tunnel, however busy.
  std::chrono::nanoseconds max_age = std::chrono::hours(24);
};

// One for a call. Whoever can reach the socket may ask, and gets what `decide` says (decision.h);
// the name is resolved once and only what that gave is dialled, by this process, directly: no proxy
// of the host's environment has a part in it.
//
// A TLS client has to name the tunnel's host (SNI) unless `server_names` says no; what it is held
// to and what it cannot hold stands in docs/egress.md.
//
// One thread, made by `serve`, moves everything, with splice; look-ups have threads of their own,
// and none of them waits for another call's. The bytes of a tunnel are never held but in its
// sockets' buffers (`max_buffers`) or one pipe a direction, 64 KiB each.
class EgressGateway : public CallEgress {
 public:
  // Makes the socket. Throws `std::system_error`.
  explicit EgressGateway(EgressOptions options);
  // `close`.
  ~EgressGateway() override;
  EgressGateway(const EgressGateway&) = delete;
  EgressGateway& operator=(const EgressGateway&) = delete;

  int socket() const override;
  void serve() override;
  // Returns once every connection is closed. In a forked child of the host it does nothing.
  void close() noexcept override;
  std::vector<EgressRecord> records() const override;

 private:
  class Loop;

  std::unique_ptr<Loop> loop_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate
