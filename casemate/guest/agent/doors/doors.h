#pragma once

// The doors of a call in `allowlist`: a resolver that gives listed names an address in here,
// listeners at those addresses, and a proxy. All lead to the host's socket and decide nothing.
//
// One single-threaded process of its own runs them, beside the call's programs and out of their
// reach. What it holds is bounded: `kMaxClients` connections with at most two pipes and a few KiB
// each, `kMaxNamesGiven` names, `kMaxListeners` listeners.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "casemate/core/egress_frame.h"
#include "casemate/guest/agent/doors/client.h"
#include "casemate/guest/agent/doors/door_names.h"
#include "casemate/guest/agent/doors/resolver.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Connections of a call's programs at a time; more wait until one ends.
inline constexpr std::size_t kMaxClients = 2048;
// Addresses with a port that somebody listens at; a quarter of the descriptors that the process may
// have, if that is less.
inline constexpr std::size_t kMaxListeners = 4096;
// Unknown names that the host is told of, for the record.
inline constexpr std::size_t kMaxNoted = 256;
// What proxies are often found at; another one where the list itself has it.
inline constexpr std::uint16_t kProxyPort = 3128;

struct DoorOptions {
  std::vector<EgressDoorRule> rules;
  AddressRange addresses = kSyntheticAddresses;
  // Of the host's socket, for the process that runs the doors.
  std::string host_path;
  // 0: none is listened at (in tests, where 53 may not be had, any other).
  std::uint16_t resolver_port = 53;
};

class Doors {
 public:
  // Opens what is listened at from the start: resolver, proxy, the list's own addresses. Throws
  // `std::system_error`. Ports below 1024 have to be free for everybody in this network.
  explicit Doors(DoorOptions options);
  ~Doors();
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  // On 127.0.0.1.
  std::uint16_t proxy_port() const { return proxy_port_; }

  // All that it has open, so that the process which serves it can close everything else.
  std::vector<int> descriptors() const;

  // Serves until `stop` (a descriptor, -1: never) can be read. The process must ignore SIGPIPE.
  void run(int stop = -1);

 private:
  struct Listener;
  struct DnsStream;
  struct Tenant;

  void open_resolver(std::uint16_t port);
  void open_proxy();
  void open_literals();
  void note_unknown(const std::string& name);
  bool open_name(const std::string& name, const Ipv4Bytes& address);
  bool open_port(const std::string& name, const Ipv4Bytes& address, std::uint16_t port);
  void add_listener(sys::UniqueFd socket, std::string host, std::uint16_t port, bool resolver);
  void take_clients(const Listener& listener);
  void answer_datagrams(int socket);
  bool serve_stream(DnsStream& stream);
  void pause_listeners(std::optional<sys::SteadyTime> until);
  void resume_listeners();
  void handle(std::uint64_t id, std::uint32_t events);
  void after(std::uint64_t id, Tenant& tenant, bool alive);
  void watch(std::uint64_t key, int& watched, std::uint32_t& registered,
             const Client::Interest& interest);
  void times_came();

  DoorShared shared_;
  Resolver resolver_;
  sys::UniqueFd epoll_;
  std::map<std::uint64_t, Listener> listeners_;
  std::map<std::uint64_t, int> datagrams_;
  std::vector<sys::UniqueFd> datagram_sockets_;
  std::map<std::uint64_t, Tenant> tenants_;
  std::set<std::pair<sys::SteadyTime, std::uint64_t>> times_;
  std::uint64_t next_id_ = 1;
  std::uint16_t proxy_port_ = 0;
  std::size_t max_listeners_ = kMaxListeners;
  bool paused_ = false;
  // Otherwise once a client has gone.
  std::optional<sys::SteadyTime> resume_at_;
  // Of names that have an address: the ports at which nobody could listen yet.
  std::map<std::string, std::set<std::uint16_t>> closed_ports_;
  // Names that the host was told of, so that it is told once.
  std::set<std::string> noted_;
};

}  // namespace casemate::guest
