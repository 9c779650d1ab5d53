#include "casemate/guest/agent/doors/doors.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <variant>

#include "casemate/sys/error.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::SteadyTime;
using sys::UniqueFd;

constexpr int kBacklog = 512;
constexpr std::size_t kEventsAtOnce = 128;
// So that no listener keeps the others waiting.
constexpr int kAcceptsAtOnce = 32;
constexpr int kDatagramsAtOnce = 64;
// For a resolver's client over TCP to go on.
constexpr auto kStreamPatience = std::chrono::seconds(10);
// After which a connection that nothing was left for is tried again.
constexpr auto kShortageMoment = std::chrono::milliseconds(50);
// Of the keys: which of a tenant's two descriptors it is.
constexpr std::uint64_t kSides = 2;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// Of an address as text.
SocketAddress make_address(const std::string& host, std::uint16_t port) {
  SocketAddress made;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    std::memcpy(&made.storage, &v4, sizeof v4);
    made.length = sizeof v4;
    return made;
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) {
    sys::throw_error(EINVAL, "a door's address");
  }
  std::memcpy(&made.storage, &v6, sizeof v6);
  made.length = sizeof v6;
  return made;
}

UniqueFd bind_socket(int type, const std::string& host, std::uint16_t port) {
  const SocketAddress address = make_address(host, port);
  UniqueFd socket(::socket(address.family(), type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) sys::throw_errno("a door's socket");
  const int yes = 1;
  if (address.family() == AF_INET6) {
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  }
  if (bind(socket.get(), address.get(), address.length) != 0) {
    sys::throw_errno("a door at " + host + " port " + std::to_string(port));
  }
  return socket;
}

UniqueFd listen_at(const std::string& host, std::uint16_t port) {
  UniqueFd socket = bind_socket(SOCK_STREAM, host, port);
  if (listen(socket.get(), kBacklog) != 0) sys::throw_errno("a door");
  return socket;
}

std::uint16_t port_of(int socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    sys::throw_errno("a door's port");
  }
  return ntohs(address.sin_port);
}

bool is_unspecified(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

}  // namespace

struct Doors::Listener {
  UniqueFd socket;
  // Empty: the proxy's.
  std::string host;
  std::uint16_t port = 0;
  bool resolver = false;
};

// A client of the resolver over TCP: one query after the other, each answered before the next.
struct Doors::DnsStream {
  UniqueFd socket;
  std::string in;
  std::string out;
  SteadyTime until;
};

struct Doors::Tenant {
  std::variant<std::unique_ptr<Client>, std::unique_ptr<DnsStream>> who;
  // As they are watched: program's side, host's side.
  std::array<int, kSides> watched{-1, -1};
  std::array<std::uint32_t, kSides> events{};
  std::optional<SteadyTime> wake_at;
};

Doors::Doors(DoorOptions options)
    : shared_{.host_path = std::move(options.host_path),
              .names = DoorNames(std::move(options.rules), options.addresses)},
      resolver_(
          shared_.names,
          [this](const std::string& name, const Ipv4Bytes& address) {
            return open_name(name, address);
          },
          [this](const std::string& name) { note_unknown(name); }),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) sys::throw_errno("watching the doors");
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    max_listeners_ = std::min<rlim_t>(kMaxListeners, files.rlim_max / 4);
  }
  open_literals();
  open_proxy();
  if (options.resolver_port != 0) open_resolver(options.resolver_port);
}

Doors::~Doors() = default;

std::vector<int> Doors::descriptors() const {
  std::vector<int> open{epoll_.get()};
  for (const auto& [id, listener] : listeners_) open.push_back(listener.socket.get());
  for (const UniqueFd& socket : datagram_sockets_) open.push_back(socket.get());
  return open;
}

// -- What is listened at
// ----------------------------------------------------------------------------

void Doors::add_listener(UniqueFd socket, std::string host, std::uint16_t port, bool resolver) {
  const std::uint64_t id = next_id_++;
  epoll_event event{.events = paused_ ? 0U : EPOLLIN, .data = {.u64 = id * kSides}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    sys::throw_errno("watching a door");
  }
  listeners_.emplace(id, Listener{std::move(socket), std::move(host), port, resolver});
}

void Doors::open_proxy() {
  constexpr char kHere[] = "127.0.0.1";
  UniqueFd socket;
  try {
    socket = listen_at(kHere, kProxyPort);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::address_in_use) throw;
    socket = listen_at(kHere, 0);
  }
  proxy_port_ = port_of(socket.get());
  add_listener(std::move(socket), {}, proxy_port_, false);
}

void Doors::open_literals() {
  for (const EgressDoorRule& rule : shared_.names.literals()) {
    if (is_unspecified(rule.host)) continue;
    for (const std::uint16_t port : rule.ports) {
      if (listeners_.size() >= max_listeners_) return;
      try {
        add_listener(listen_at(rule.host, port), rule.host, port, false);
      } catch (const std::system_error& error) {
        // No IPv6 in this kernel; the proxy goes there all the same.
        if (error.code() == std::errc::address_family_not_supported ||
            error.code() == std::errc::address_not_available) {
          continue;
        }
        throw;
      }
    }
  }
}

void Doors::open_resolver(std::uint16_t port) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    try {
      UniqueFd datagrams = bind_socket(SOCK_DGRAM, host, port);
      UniqueFd streams = listen_at(host, port);
      const std::uint64_t id = next_id_++;
      epoll_event event{.events = EPOLLIN, .data = {.u64 = id * kSides}};
      if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, datagrams.get(), &event) != 0) {
        sys::throw_errno("watching the resolver");
      }
      datagrams_.emplace(id, datagrams.get());
      datagram_sockets_.push_back(std::move(datagrams));
      add_listener(std::move(streams), {}, port, true);
    } catch (const std::system_error& error) {
      const bool missing = error.code() == std::errc::address_family_not_supported ||
                           error.code() == std::errc::address_not_available;
      if (!missing || std::string_view(host) != "::1") throw;
    }
  }
}

// Said and forgotten: the host reads what waits for it also when nobody waits for its answer. Where
// it takes no connection in this moment it is not told.
void Doors::note_unknown(const std::string& name) {
  if (noted_.size() >= kMaxNoted || !noted_.insert(name).second) return;
  HostLink(shared_.host_path, {.door = EgressDoor::transparent, .host = name, .port = 0}).advance();
}

// At the ports that can be had; the others are tried again whenever the name is asked for.
bool Doors::open_name(const std::string& name, const Ipv4Bytes& address) {
  const std::set<std::uint16_t> ports = shared_.names.ports_of(name);
  std::set<std::uint16_t>& closed = closed_ports_.try_emplace(name, ports).first->second;
  std::erase_if(closed, [&](std::uint16_t port) { return open_port(name, address, port); });
  return closed.size() < ports.size();
}

bool Doors::open_port(const std::string& name, const Ipv4Bytes& address, std::uint16_t port) {
  if (listeners_.size() >= max_listeners_) return false;
  try {
    add_listener(listen_at(address_text(address), port), name, port, false);
    return true;
  } catch (const std::system_error&) {
    // A program listens there, at every address, or this process has no descriptor left.
    return false;
  }
}

// -- Serving
// ----------------------------------------------------------------------------------------

void Doors::run(int stop) {
  constexpr std::uint64_t kStop = 0;
  if (stop >= 0) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kStop}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop, &event) != 0) sys::throw_errno("watching");
  }
  std::array<epoll_event, kEventsAtOnce> events;
  while (true) {
    int patience = -1;
    std::optional<SteadyTime> next = resume_at_;
    if (!times_.empty()) next = std::min(next.value_or(SteadyTime::max()), times_.begin()->first);
    if (next) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(*next - SteadyTime::clock::now());
      patience = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
    }
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), patience);
    if (count < 0 && errno != EINTR) sys::throw_errno("waiting at the doors");
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kStop) return;
      handle(event.data.u64, event.events);
    }
    times_came();
  }
}

void Doors::handle(std::uint64_t key, std::uint32_t events) {
  const std::uint64_t id = key / kSides;
  if (const auto listener = listeners_.find(id); listener != listeners_.end()) {
    return take_clients(listener->second);
  }
  if (const auto datagrams = datagrams_.find(id); datagrams != datagrams_.end()) {
    return answer_datagrams(datagrams->second);
  }
  // One that has gone since the kernel told of it.
  const auto tenant = tenants_.find(id);
  if (tenant == tenants_.end()) return;
  bool alive = false;
  if (auto* client = std::get_if<std::unique_ptr<Client>>(&tenant->second.who)) {
    alive = (*client)->ready(static_cast<Client::Side>(key % kSides), events);
  } else {
    alive = serve_stream(*std::get<std::unique_ptr<DnsStream>>(tenant->second.who));
  }
  after(id, tenant->second, alive);
}

void Doors::take_clients(const Listener& listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    // Until one has gone.
    if (tenants_.size() >= kMaxClients) return pause_listeners(std::nullopt);
    UniqueFd socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // What waits is reported until there is what it needs, which others may have taken.
      if (sys::is_shortage(errno)) pause_listeners(SteadyTime::clock::now() + kShortageMoment);
      return;
    }
    const int yes = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    // A mark of urgent data would stand in the way of all that comes behind it.
    setsockopt(socket.get(), SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes);
    const std::uint64_t id = next_id_++;
    Tenant& tenant = tenants_[id];
    if (listener.resolver) {
      tenant.who = std::make_unique<DnsStream>(
          DnsStream{.socket = std::move(socket),
                    .in = {},
                    .out = {},
                    .until = SteadyTime::clock::now() + kStreamPatience});
      after(id, tenant, true);
      continue;
    }
    auto client = listener.host.empty() ? std::make_unique<Client>(std::move(socket), shared_)
                                        : std::make_unique<Client>(std::move(socket), shared_,
                                                                   listener.host, listener.port);
    const bool alive = client->begin();
    tenant.who = std::move(client);
    after(id, tenant, alive);
  }
}

// Where it stands now: what of it is watched, when it is to be woken, or that it has gone.
void Doors::after(std::uint64_t id, Tenant& tenant, bool alive) {
  if (tenant.wake_at) times_.erase({*tenant.wake_at, id});
  if (!alive) {
    tenants_.erase(id);
    return resume_listeners();
  }
  if (const auto* client = std::get_if<std::unique_ptr<Client>>(&tenant.who)) {
    for (std::uint64_t side = 0; side < kSides; ++side) {
      watch(id * kSides + side, tenant.watched[side], tenant.events[side],
            (*client)->interest(static_cast<Client::Side>(side)));
    }
    tenant.wake_at = (*client)->wake_at();
  } else {
    const DnsStream& stream = *std::get<std::unique_ptr<DnsStream>>(tenant.who);
    watch(
        id * kSides, tenant.watched[0], tenant.events[0],
        {stream.socket.get(), static_cast<std::uint32_t>(stream.out.empty() ? EPOLLIN : EPOLLOUT)});
    tenant.wake_at = stream.until;
  }
  if (tenant.wake_at) times_.insert({*tenant.wake_at, id});
}

// A descriptor that nothing is expected of is taken out, for its end would be reported all the
// time; one that was closed has left by itself.
void Doors::watch(std::uint64_t key, int& watched, std::uint32_t& registered,
                  const Client::Interest& interest) {
  const bool wanted = interest.fd >= 0 && (interest.events != 0 || interest.end);
  if (watched >= 0 && (!wanted || watched != interest.fd)) {
    if (watched == interest.fd) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched, nullptr);
    watched = -1;
  }
  if (!wanted || (watched == interest.fd && registered == interest.events)) return;
  epoll_event event{.events = interest.events, .data = {.u64 = key}};
  const int act = watched < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(epoll_.get(), act, interest.fd, &event) != 0) sys::throw_errno("watching a client");
  watched = interest.fd;
  registered = interest.events;
}

void Doors::times_came() {
  const SteadyTime now = SteadyTime::clock::now();
  if (resume_at_ && *resume_at_ <= now) resume_listeners();
  while (!times_.empty() && times_.begin()->first <= now) {
    const std::uint64_t id = times_.begin()->second;
    Tenant& tenant = tenants_.at(id);
    bool alive = false;
    if (auto* client = std::get_if<std::unique_ptr<Client>>(&tenant.who)) {
      alive = (*client)->time_came();
    }
    after(id, tenant, alive);
  }
}

void Doors::pause_listeners(std::optional<SteadyTime> until) {
  if (paused_) return;
  paused_ = true;
  resume_at_ = until;
  for (const auto& [id, listener] : listeners_) {
    epoll_event event{.events = 0, .data = {.u64 = id * kSides}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.socket.get(), &event);
  }
}

void Doors::resume_listeners() {
  if (!paused_) return;
  paused_ = false;
  resume_at_.reset();
  for (const auto& [id, listener] : listeners_) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id * kSides}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.socket.get(), &event);
  }
}

// -- The resolver
// -----------------------------------------------------------------------------------

void Doors::answer_datagrams(int socket) {
  std::array<char, kMaxDnsQuery> query;
  for (int i = 0; i < kDatagramsAtOnce; ++i) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    const ssize_t got = recvfrom(socket, query.data(), query.size(), MSG_DONTWAIT | MSG_TRUNC,
                                 reinterpret_cast<sockaddr*>(&from), &length);
    if (got < 0 && errno != EINTR) return;
    if (got < 0 || static_cast<std::size_t>(got) > query.size()) continue;
    const auto answer =
        resolver_.answer(std::string_view(query.data(), static_cast<std::size_t>(got)));
    if (!answer) continue;
    // One that does not take it may ask again.
    sendto(socket, answer->data(), answer->size(), MSG_DONTWAIT | MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&from), length);
  }
}

// RFC 1035, section 4.2.2: each message behind its length. False: it is over.
bool Doors::serve_stream(DnsStream& stream) {
  constexpr std::size_t kLength = 2;
  stream.until = SteadyTime::clock::now() + kStreamPatience;
  if (stream.out.empty()) {
    std::array<char, kMaxDnsQuery + kLength> bytes;
    const ssize_t got =
        recv(stream.socket.get(), bytes.data(), bytes.size() - stream.in.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    stream.in.append(bytes.data(), static_cast<std::size_t>(got));
  }
  while (true) {
    if (!stream.out.empty()) {
      const ssize_t sent = send(stream.socket.get(), stream.out.data(), stream.out.size(),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      stream.out.erase(0, static_cast<std::size_t>(sent));
      if (!stream.out.empty()) return true;
    }
    if (stream.in.size() < kLength) return true;
    const std::size_t size = static_cast<std::size_t>(static_cast<unsigned char>(stream.in[0]))
                                 << 8 |
                             static_cast<unsigned char>(stream.in[1]);
    if (size > kMaxDnsQuery) return false;
    if (stream.in.size() < kLength + size) return true;
    const auto answer = resolver_.answer(std::string_view(stream.in).substr(kLength, size));
    stream.in.erase(0, kLength + size);
    if (!answer) return false;
    stream.out = {static_cast<char>(answer->size() >> 8), static_cast<char>(answer->size() & 0xff)};
    stream.out += *answer;
  }
}

}  // namespace casemate::guest
