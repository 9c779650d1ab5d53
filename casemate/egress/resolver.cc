#include "casemate/egress/resolver.h"

#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "casemate/sys/signals.h"
#include "casemate/sys/thread.h"

namespace casemate {
namespace {

std::optional<IpAddress> address_of(const addrinfo& entry) {
  IpAddress address;
  if (entry.ai_family == AF_INET) {
    sockaddr_in found{};
    std::memcpy(&found, entry.ai_addr, sizeof found);
    std::memcpy(address.bytes.data(), &found.sin_addr, sizeof found.sin_addr);
    return address;
  }
  if (entry.ai_family == AF_INET6) {
    sockaddr_in6 found{};
    std::memcpy(&found, entry.ai_addr, sizeof found);
    address.family = IpAddress::Family::ipv6;
    std::memcpy(address.bytes.data(), &found.sin6_addr, sizeof found.sin6_addr);
    return address;
  }
  return std::nullopt;
}

// Names are asked for as they stand: a search list of this host's would have a name that is not
// there looked up, and dialled, below a domain that nobody listed. `_res` is this thread's own
// (resolver(3)); read anew, as the machine's settings may have changed.
class NoSearchList {
 public:
  NoSearchList() {
    res_init();
    before_ = _res.options;
    _res.options &= ~(static_cast<unsigned long>(RES_DNSRCH) | RES_DEFNAMES);
  }
  ~NoSearchList() { _res.options = before_; }
  NoSearchList(const NoSearchList&) = delete;
  NoSearchList& operator=(const NoSearchList&) = delete;

 private:
  unsigned long before_;
};

std::vector<IpAddress> look_up(const std::string& name) {
  const NoSearchList as_it_stands;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (failure != 0) throw std::runtime_error(gai_strerror(failure));
  std::vector<IpAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const std::optional<IpAddress> address = address_of(*entry);
    if (address && std::ranges::find(addresses, *address) == addresses.end()) {
      addresses.push_back(*address);
    }
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

EgressResolver system_resolver() {
  return [](const std::string& name, const std::stop_token&) { return look_up(name); };
}

struct ResolverPool::State {
  struct Job {
    std::string name;
    Done done;
  };

  explicit State(EgressResolver with) : resolver(std::move(with)) {}

  const EgressResolver resolver;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  std::size_t threads = 0;
  std::size_t idle = 0;
  std::stop_source stopping;

  static void serve(const std::shared_ptr<State>& self) {
    std::unique_lock lock(self->mutex);
    while (true) {
      ++self->idle;
      self->changed.wait(lock,
                         [&] { return self->stopping.stop_requested() || !self->jobs.empty(); });
      --self->idle;
      if (self->stopping.stop_requested()) break;
      const Job job = std::move(self->jobs.front());
      self->jobs.pop_front();
      lock.unlock();
      job.done(self->look_up(job.name));
      lock.lock();
    }
    --self->threads;
  }

  Result look_up(const std::string& name) const noexcept {
    Result result;
    try {
      result.addresses = resolver(name, stopping.get_token());
      if (result.addresses.size() > kMaxAddresses) result.addresses.resize(kMaxAddresses);
    } catch (const std::exception& error) {
      result.failure = error.what();
    } catch (...) {
      result.failure = "the resolver failed";
    }
    return result;
  }
};

ResolverPool::ResolverPool(EgressResolver resolver)
    : state_(std::make_shared<State>(std::move(resolver))) {}

ResolverPool::~ResolverPool() {
  state_->stopping.request_stop();
  {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.clear();
  }
  state_->changed.notify_all();
}

bool ResolverPool::resolve(std::string name, Done done) {
  const std::lock_guard lock(state_->mutex);
  if (state_->jobs.size() >= kMaxWaitingNames) return false;
  state_->jobs.push_back({std::move(name), std::move(done)});
  if (state_->jobs.size() > state_->idle && state_->threads < kMaxResolverThreads) {
    try {
      const sys::SignalsBlocked blocked;
      sys::start_thread([state = state_] { State::serve(state); }).detach();
      ++state_->threads;
    } catch (const std::system_error&) {
      if (state_->threads == 0) {
        state_->jobs.pop_back();
        return false;
      }
    }
  }
  state_->changed.notify_one();
  return true;
}

}  // namespace casemate
