#include "casemate/guest/stream/channel_bridge.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "casemate/sys/error.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

constexpr std::uint64_t kStreamIn = std::uint64_t{1} << 32;
constexpr std::uint64_t kStreamOut = kStreamIn + 1;
constexpr std::uint64_t kWake = kStreamIn + 2;
constexpr std::uint32_t kLinkEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
// While more than this waits for the stream, no channel's bytes are added: what is urgent waits
// behind no more.
constexpr std::size_t kEnoughPending = 2 * kMaxStreamPayload;
constexpr std::size_t kReadBytes = 64 * 1024;
// Written in one turn, so that what comes is looked at however much there is to say.
constexpr std::size_t kWriteBytes = 256 * 1024;
// What has been delivered of a piece is let go of with all of it.
constexpr std::size_t kMaxChunk = 64 * 1024;

void make_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) sys::throw_errno("F_SETFL");
}

bool is_gone(int socket) {
  pollfd entry{socket, 0, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

StreamEnd StreamEnd::of(sys::UniqueFd both) {
  sys::UniqueFd out(fcntl(both.get(), F_DUPFD_CLOEXEC, 0));
  if (!out) sys::throw_errno("duplicating a stream");
  return {std::move(both), std::move(out)};
}

ChannelBridge::ChannelBridge(StreamSide side, StreamEnd stream, std::uint32_t others_channels)
    : others_limit_(std::min(others_channels, kMaxStreamChannels)),
      multiplexer_(side, others_limit_, *this),
      stream_(std::move(stream)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      buffer_(kReadBytes, '\0') {
  if (!epoll_) sys::throw_errno("epoll_create1");
  make_nonblocking(stream_.in.get());
  make_nonblocking(stream_.out.get());
  watch(stream_.in.get(), kStreamIn, EPOLLIN);
  // For its end at first: that is reported whatever is asked for.
  watch(stream_.out.get(), kStreamOut, 0);
}

void ChannelBridge::watch(int fd, std::uint64_t id, std::uint32_t events, bool anew) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), anew ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) {
    sys::throw_errno("epoll_ctl");
  }
}

void ChannelBridge::wake_by(int event) { watch(event, kWake, EPOLLIN); }

bool ChannelBridge::turn() {
  fill();
  write_stream();
  const bool goes_on = !out_blocked_ && !(queue_.empty() && multiplexer_.pending().empty());
  std::array<epoll_event, 64> events{};
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), goes_on ? 0 : -1);
  if (count < 0 && errno != EINTR) sys::throw_errno("epoll_wait");
  for (int i = 0; i < count && !over_; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kStreamIn) {
      read_stream();
    } else if (event.data.u64 == kStreamOut) {
      // Nobody reads it any more: that would be reported again and again, and what is still to come
      // is to be read. The next write tells.
      if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) {
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream_.out.get(), nullptr);
      }
      write_stream();
    } else if (event.data.u64 == kWake) {
      woken();
    } else {
      handle(static_cast<ChannelId>(event.data.u64), event.events);
    }
  }
  clean_up();
  return !over_;
}

std::vector<ChannelId> ChannelBridge::related_to(ChannelId channel, ChannelKind kind) const {
  std::vector<ChannelId> found;
  for (const auto& [id, link] : links_) {
    if (link.related == channel && link.kind == kind) found.push_back(id);
  }
  return found;
}

void ChannelBridge::hang_up() noexcept {
  links_.clear();
  lingering_.clear();
  queue_.clear();
  stream_.in.reset();
  stream_.out.reset();
}

// -- The stream ----------------------------------------------------------------------------------

// In turns, a piece of each that has something to send.
void ChannelBridge::fill() {
  while (!queue_.empty() && multiplexer_.pending().size() < kEnoughPending) {
    const ChannelId channel = queue_.front();
    queue_.pop_front();
    Link* link = find(channel);
    if (link == nullptr) continue;
    link->queued = false;
    // Its end came while it waited for its turn: the multiplexer may know it no more.
    if (link->read_ended) continue;
    if (read_link(channel, *link)) queue(channel, *link);
  }
}

void ChannelBridge::write_stream() {
  const bool was_blocked = std::exchange(out_blocked_, false);
  std::size_t written_now = 0;
  while (!multiplexer_.pending().empty() && written_now < kWriteBytes) {
    const std::string_view bytes = multiplexer_.pending();
    const ssize_t written = write(stream_.out.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) sys::throw_errno("writing to the stream");
    if (written < 0) {
      out_blocked_ = true;
      break;
    }
    written_now += static_cast<std::size_t>(written);
    multiplexer_.sent(static_cast<std::size_t>(written));
    fill();
  }
  if (out_blocked_ == was_blocked) return;
  watch(stream_.out.get(), kStreamOut, out_blocked_ ? std::uint32_t{EPOLLOUT} : 0U, /*anew=*/true);
}

void ChannelBridge::say_goodbye(sys::SteadyTime until) {
  links_.clear();
  lingering_.clear();
  queue_.clear();
  multiplexer_.say_goodbye();
  while (true) {
    write_stream();
    if (multiplexer_.pending().empty()) return;
    std::array<pollfd, 1> entries{pollfd{stream_.out.get(), POLLOUT, 0}};
    if (sys::poll_until(entries, until) == 0) return;
  }
}

void ChannelBridge::read_stream() {
  const ssize_t got = read(stream_.in.get(), buffer_.data(), buffer_.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) sys::throw_errno("reading from the stream");
  if (got == 0) {
    multiplexer_.receive_end();
    over_ = true;
    return;
  }
  multiplexer_.receive({buffer_.data(), static_cast<std::size_t>(got)});
}

// -- Links ---------------------------------------------------------------------------------------

ChannelBridge::Link* ChannelBridge::find(ChannelId channel) {
  const auto found = links_.find(channel);
  return found == links_.end() ? nullptr : &found->second;
}

ChannelBridge::Link& ChannelBridge::add(ChannelId channel, ChannelKind kind, ChannelId related,
                                        sys::UniqueFd socket) {
  Link link;
  link.kind = kind;
  link.related = related;
  link.socket = std::move(socket);
  Link& added = links_.insert_or_assign(channel, std::move(link)).first->second;
  const bool connected = kind == ChannelKind::control || kind == ChannelKind::stream;
  if (added.socket && connected) {
    make_nonblocking(added.socket.get());
    added.writable = true;
    watch_link(channel, added);
  }
  return added;
}

void ChannelBridge::watch_link(ChannelId channel, const Link& link) {
  watch(link.socket.get(), channel, kLinkEvents);
}

void ChannelBridge::queue(ChannelId channel, Link& link) {
  if (link.queued || !link.readable || link.read_ended) return;
  link.queued = true;
  queue_.push_back(channel);
}

void ChannelBridge::handle(ChannelId channel, std::uint32_t events) {
  Link* link = find(channel);
  if (link == nullptr) return;
  if (link->kind == ChannelKind::token) {
    if ((events & EPOLLHUP) != 0) end_reading(channel, *link);
    return;
  }
  if ((events & EPOLLOUT) != 0) {
    link->writable = true;
    flush(channel, *link);
  }
  // Nobody has the other end any more: what was said there before is still to be read.
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) write_failed(channel, *link);
  if ((events & ~std::uint32_t{EPOLLOUT}) != 0) {
    link->readable = true;
    if ((events & ~std::uint32_t{EPOLLOUT | EPOLLIN}) != 0) link->end_is_near = true;
    queue(channel, *link);
  }
}

bool ChannelBridge::read_link(ChannelId channel, Link& link) {
  const std::size_t room = multiplexer_.room(channel);
  if (room == 0) return false;
  std::array<char, kMaxStreamPayload> bytes;
  sys::ReceivedBytes got;
  try {
    got = sys::receive_bytes(link.socket.get(), std::span(bytes).first(room), sys::Blocking::no);
  } catch (const std::system_error&) {
    // The other end is gone.
  }
  if (got.would_block) {
    link.readable = false;
    return false;
  }
  if (got.bytes == 0) {
    // Who closed altogether is to be found gone by whoever comes to the end of what it said.
    if (is_gone(link.socket.get())) write_failed(channel, link);
    end_reading(channel, link);
    return false;
  }
  multiplexer_.send(channel, {bytes.data(), got.bytes});
  // There was no more, and when there is, or an end, it will be reported anew.
  if (got.bytes < room && !link.end_is_near) link.readable = false;
  return link.readable;
}

void ChannelBridge::end_reading(ChannelId channel, Link& link) {
  if (link.read_ended) return;
  link.read_ended = true;
  multiplexer_.end(channel);
  ended_.push_back(channel);
}

// What came cannot be delivered any more.
void ChannelBridge::write_failed(ChannelId channel, Link& link) {
  if (link.write_broken) return;
  link.write_broken = true;
  link.chunks.clear();
  link.carried.clear();
  if (multiplexer_.is_open(channel) && !link.ending) multiplexer_.stop(channel);
  ended_.push_back(channel);
}

void ChannelBridge::flush(ChannelId channel, Link& link) {
  while (link.writable && !link.chunks.empty()) {
    Link::Chunk& first = link.chunks.front();
    std::vector<int> descriptors;
    for (const sys::UniqueFd& each : first.descriptors) descriptors.push_back(each.get());
    std::size_t sent = 0;
    try {
      sent =
          sys::send_message(link.socket.get(), std::span(first.bytes).subspan(link.sent_of_first),
                            descriptors, sys::Blocking::no);
    } catch (const std::system_error&) {
      return write_failed(channel, link);
    }
    if (sent == 0) {
      link.writable = false;
      return;
    }
    first.descriptors.clear();
    link.sent_of_first += sent;
    if (link.sent_of_first == first.bytes.size()) {
      link.chunks.pop_front();
      link.sent_of_first = 0;
    }
    if (multiplexer_.is_open(channel)) multiplexer_.taken(channel, sent);
  }
  if (!link.chunks.empty() || !link.ending) return;
  tell_end(link);
  ended_.push_back(channel);
}

void ChannelBridge::tell_end(Link& link) {
  if (link.socket && !link.write_broken) shutdown(link.socket.get(), SHUT_WR);
}

void ChannelBridge::drop(ChannelId channel) {
  Link* link = find(channel);
  if (link != nullptr) {
    write_failed(channel, *link);
    end_reading(channel, *link);
    link->socket.reset();
    return;
  }
  multiplexer_.stop(channel);
  multiplexer_.end(channel);
}

void ChannelBridge::clean_up() {
  for (const ChannelId channel : std::exchange(ended_, {})) {
    const auto found = links_.find(channel);
    if (found == links_.end() || multiplexer_.is_open(channel)) continue;
    if (!found->second.chunks.empty()) {
      lingering_.insert(channel);
      continue;
    }
    const ChannelKind kind = found->second.kind;
    lingering_.erase(channel);
    links_.erase(found);
    closed(channel, kind);
  }
  // A side that opens, fills and ends one channel after the other has no more held here than one
  // that leaves them open.
  while (lingering_.size() > others_limit_) {
    const ChannelId channel = *lingering_.begin();
    lingering_.erase(lingering_.begin());
    const ChannelKind kind = links_.at(channel).kind;
    links_.erase(channel);
    closed(channel, kind);
  }
}

// -- What the other side did ---------------------------------------------------------------------

void ChannelBridge::on_open(ChannelId channel, ChannelKind kind, ChannelId related) {
  opened(channel, kind, related);
}

void ChannelBridge::on_data(ChannelId channel, std::string_view bytes) {
  Link* link = find(channel);
  if (link == nullptr || link->write_broken) return;
  if (!link->carried.empty() || link->chunks.empty() ||
      link->chunks.back().bytes.size() >= kMaxChunk) {
    link->chunks.push_back({std::string(bytes), std::exchange(link->carried, {})});
  } else {
    link->chunks.back().bytes += bytes;
  }
  flush(channel, *link);
}

void ChannelBridge::on_room(ChannelId channel) {
  if (Link* link = find(channel)) queue(channel, *link);
}

void ChannelBridge::on_end(ChannelId channel) {
  Link* link = find(channel);
  if (link == nullptr) return;
  ended_.push_back(channel);
  if (link->kind == ChannelKind::listener || link->kind == ChannelKind::token) {
    return end_without_data(channel, *link);
  }
  link->ending = true;
  if (link->chunks.empty()) tell_end(*link);
}

void ChannelBridge::end_without_data(ChannelId channel, Link& link) {
  link.ending = true;
  link.socket.reset();
  end_reading(channel, link);
}

void ChannelBridge::on_stop(ChannelId channel) {
  Link* link = find(channel);
  if (link == nullptr) return multiplexer_.end(channel);
  if (link->socket && link->kind != ChannelKind::token) shutdown(link->socket.get(), SHUT_RD);
  end_reading(channel, *link);
}

}  // namespace casemate::guest
