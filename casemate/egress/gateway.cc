#include "casemate/egress/gateway.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/egress/record_book.h"
#include "casemate/egress/tunnel.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/signals.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/thread.h"

namespace casemate {
namespace {

// What the wait reports for our own descriptors; a tunnel's are its number, doubled, and one more
// for its origin.
enum : std::uint64_t { kWake = 0, kListening = 1, kFirstTunnel = 1 };
// Among the deadlines, where tunnels stand by their number.
constexpr std::uint64_t kAcceptAgain = 0;
constexpr std::size_t kEventsAtOnce = 64;
// Connections taken in one go, so that a flood does not keep the thread from its tunnels.
constexpr int kMaxAccepted = 64;
// After a connection could not be taken: when the next try is.
constexpr std::chrono::milliseconds kAcceptPause{100};

std::uint64_t event_id(std::uint64_t tunnel, Tunnel::Side side) {
  return tunnel * 2 + (side == Tunnel::Side::origin ? 1 : 0);
}

// What threads of look-ups leave for the one of the tunnels; theirs too, for as long as they need
// it.
struct Mailbox {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, ResolverPool::Result>> resolved;
  bool stopping = false;
  sys::UniqueFd event = sys::make_event();

  void post(std::uint64_t tunnel, ResolverPool::Result result) {
    {
      const std::lock_guard lock(mutex);
      resolved.emplace_back(tunnel, std::move(result));
    }
    sys::raise_event(event.get());
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    sys::raise_event(event.get());
  }
};

}  // namespace

class EgressGateway::Loop {
 public:
  explicit Loop(EgressOptions options)
      : options_(std::move(options)),
        context_{.options = options_, .book = book_},
        descriptors_(options_.descriptors ? options_.descriptors
                                          : DescriptorBudget::of_this_process()),
        resolver_(options_.resolver ? options_.resolver : system_resolver()),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) sys::throw_errno("epoll_create1");
    context_.left_out = options_.max_bytes_out;
    context_.left_in = options_.max_bytes_in;
    context_.left_buffers = options_.max_buffers;
    context_.resolve = [this](std::uint64_t tunnel, const std::string& name) {
      return resolver_.resolve(name, [mailbox = mailbox_, tunnel](ResolverPool::Result result) {
        mailbox->post(tunnel, std::move(result));
      });
    };
    context_.watch_origin = [this](std::uint64_t tunnel, int socket) {
      watch(socket, event_id(tunnel, Tunnel::Side::origin),
            EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    };
    // Each raise is an edge, so nobody has to lower it.
    watch(mailbox_->event.get(), kWake, EPOLLIN | EPOLLET);
  }

  int socket() const { return listening_.get(); }
  std::vector<EgressRecord> records() const { return book_.records(); }

  void serve() {
    sys::start_listening(listening_.get());
    watch(listening_.get(), kListening, EPOLLIN);
    const sys::SignalsBlocked blocked;
    thread_ = sys::start_thread([this] { run(); });
  }

  void close() noexcept {
    mailbox_->stop();
    if (thread_.joinable()) thread_.join();
    listening_.reset();
  }

 private:
  using Tunnels = std::map<std::uint64_t, std::unique_ptr<Tunnel>>;

  void log(LogLevel level, std::string_view text) const {
    write_log(options_.log, level, fmt::format("egress of call {}: {}", options_.call, text));
  }

  void watch(int fd, std::uint64_t id, std::uint32_t events, int operation = EPOLL_CTL_ADD) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (epoll_ctl(epoll_.get(), operation, fd, &event) < 0) sys::throw_errno("epoll_ctl");
  }

  void run() noexcept {
    try {
      while (turn()) {
      }
    } catch (const std::exception& error) {
      log(LogLevel::error, fmt::format("given up: {}", escape_for_display(error.what())));
    }
    for (const auto& [number, tunnel] : tunnels_) tunnel->end("the call ended");
    while (!tunnels_.empty()) remove(tunnels_.begin());
    // Those that still come are told at once that nobody is there, also while a process that was
    // forked meanwhile holds the socket.
    sys::shut_down(listening_.get());
    listening_.reset();
  }

  // False at the end.
  bool turn() {
    std::array<epoll_event, kEventsAtOnce> events{};
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 milliseconds_to_wait());
    if (count < 0 && errno != EINTR) sys::throw_errno("epoll_wait");
    context_.now = sys::SteadyTime::clock::now();
    for (int index = 0; index < count; ++index) {
      const epoll_event& event = events[static_cast<std::size_t>(index)];
      if (event.data.u64 == kWake) {
        if (!take_mail()) return false;
      } else if (event.data.u64 == kListening) {
        take_connections();
      } else {
        const std::uint64_t id = event.data.u64;
        with_tunnel(id / 2, [&](Tunnel& tunnel) {
          tunnel.ready(id % 2 == 0 ? Tunnel::Side::client : Tunnel::Side::origin, event.events);
        });
      }
    }
    for (const std::uint64_t number : std::exchange(waiting_, {})) {
      with_tunnel(number, [](Tunnel& tunnel) { tunnel.go_on(); });
    }
    tell_time();
    return true;
  }

  int milliseconds_to_wait() const {
    if (!waiting_.empty()) return 0;
    if (deadlines_.empty()) return -1;
    const auto left = deadlines_.begin()->first - sys::SteadyTime::clock::now();
    // Rounded up: a deadline that has not come yet is not worth a turn.
    const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    constexpr std::int64_t kLongest = 60'000;
    return static_cast<int>(std::clamp<std::int64_t>(rounded, 0, kLongest));
  }

  template <typename Act>
  void with_tunnel(std::uint64_t number, Act act) {
    const auto found = tunnels_.find(number);
    if (found == tunnels_.end()) return;
    act(*found->second);
    settle(found);
  }

  void settle(Tunnels::iterator entry) {
    const std::uint64_t number = entry->first;
    const Tunnel& tunnel = *entry->second;
    if (tunnel.over()) {
      unschedule(number);
      return remove(entry);
    }
    if (tunnel.wants_turn()) waiting_.insert(number);
    // A later one is found when the earlier has come, so that traffic does not move it each time.
    const auto known = scheduled_.find(number);
    if (known == scheduled_.end() || tunnel.deadline() < known->second) {
      schedule(number, tunnel.deadline());
    }
  }

  void remove(Tunnels::iterator entry) {
    tunnels_.erase(entry);
    // Of pipes there are never more than the tunnels' places have room for.
    context_.pipes.keep_at_most(2 * tunnels_.size());
    descriptors_->give_back();
  }

  void schedule(std::uint64_t number, sys::SteadyTime at) {
    unschedule(number);
    scheduled_[number] = at;
    deadlines_.emplace(at, number);
  }

  void unschedule(std::uint64_t number) {
    const auto known = scheduled_.find(number);
    if (known == scheduled_.end()) return;
    deadlines_.erase({known->second, number});
    scheduled_.erase(known);
  }

  void tell_time() {
    while (!deadlines_.empty() && deadlines_.begin()->first <= context_.now) {
      const std::uint64_t number = deadlines_.begin()->second;
      unschedule(number);
      if (number == kAcceptAgain) {
        watch(listening_.get(), kListening, EPOLLIN, EPOLL_CTL_MOD);
      } else {
        with_tunnel(number, [](Tunnel& tunnel) { tunnel.time_has_come(); });
      }
    }
  }

  bool take_mail() {
    std::vector<std::pair<std::uint64_t, ResolverPool::Result>> resolved;
    {
      const std::lock_guard lock(mailbox_->mutex);
      if (mailbox_->stopping) return false;
      resolved.swap(mailbox_->resolved);
    }
    for (const auto& [number, result] : resolved) {
      with_tunnel(number, [&answer = result](Tunnel& tunnel) { tunnel.resolved(answer); });
    }
    return true;
  }

  void take_connections() {
    try {
      for (int taken = 0; taken < kMaxAccepted; ++taken) {
        sys::UniqueFd client = sys::accept_connection(listening_.get());
        if (!client) break;
        add(std::move(client));
      }
      takes_none_ = false;
    } catch (const std::system_error& error) {
      // Out of descriptors, most likely, and whoever waits is still there: asked at once, the
      // socket would report it again and again.
      if (!std::exchange(takes_none_, true)) {
        log(LogLevel::warning, fmt::format("no connection can be taken for now: {}",
                                           escape_for_display(error.what())));
      }
      watch(listening_.get(), kListening, 0, EPOLL_CTL_MOD);
      schedule(kAcceptAgain, context_.now + kAcceptPause);
    }
  }

  void add(sys::UniqueFd client) {
    if (tunnels_.size() >= options_.max_tunnels) {
      return turn_away(client, "as many as a call may have");
    }
    if (!descriptors_->take(tunnels_.size())) {
      return turn_away(client, "the process has no descriptors for another one");
    }
    const std::uint64_t number = next_tunnel_++;
    const int fd = client.get();
    const auto entry =
        tunnels_.emplace(number, std::make_unique<Tunnel>(number, std::move(client), context_))
            .first;
    try {
      watch(fd, event_id(number, Tunnel::Side::client), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    } catch (const std::system_error&) {
      remove(entry);
      throw;
    }
    settle(entry);
  }

  void turn_away(const sys::UniqueFd& client, std::string_view why) {
    const std::string reason = fmt::format("{} tunnels are open; {}", tunnels_.size(), why);
    const std::string answer = encode_egress(EgressAnswer{
        EgressCode::too_many,
        fmt::format("This program has {} connections open and can have no more for now.",
                    tunnels_.size())});
    try {
      sys::send_message(client.get(), answer, {}, sys::Blocking::no);
    } catch (const std::system_error&) {
      // It is gone already.
    }
    const EgressRecord record{.decision = EgressDecision::denied, .reason = reason};
    book_.finish(book_.begin(record), record);
    if (!std::exchange(turned_away_, true)) log(LogLevel::warning, reason);
  }

  const EgressOptions options_;
  EgressRecordBook book_;
  TunnelContext context_;
  const std::shared_ptr<DescriptorBudget> descriptors_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  ResolverPool resolver_;
  sys::UniqueFd listening_ = sys::make_stream_socket();
  sys::UniqueFd epoll_;

  Tunnels tunnels_;
  std::uint64_t next_tunnel_ = kFirstTunnel;
  std::set<std::uint64_t> waiting_;
  std::set<std::pair<sys::SteadyTime, std::uint64_t>> deadlines_;
  std::map<std::uint64_t, sys::SteadyTime> scheduled_;
  bool takes_none_ = false;
  bool turned_away_ = false;
  // Last: it uses all of the others.
  std::thread thread_;
};

EgressGateway::EgressGateway(EgressOptions options)
    : loop_(std::make_unique<Loop>(std::move(options))) {}

EgressGateway::~EgressGateway() {
  close();
  // The thread is the parent's.
  if (!owner_.is_current()) static_cast<void>(loop_.release());
}

int EgressGateway::socket() const { return loop_->socket(); }

void EgressGateway::serve() { loop_->serve(); }

void EgressGateway::close() noexcept {
  if (owner_.is_current()) loop_->close();
}

std::vector<EgressRecord> EgressGateway::records() const { return loop_->records(); }

}  // namespace casemate
