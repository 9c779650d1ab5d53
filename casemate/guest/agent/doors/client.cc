#include "casemate/guest/agent/doors/client.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>
#include <variant>

#include "casemate/guest/agent/doors/http_reply.h"
#include "casemate/guest/agent/doors/socks5.h"

namespace casemate::guest {
namespace {

using Clock = sys::SteadyTime::clock;

// For a client of the proxy to say what it wants.
constexpr auto kHearing = std::chrono::seconds(10);
// For one that was refused to read that and close.
constexpr auto kParting = std::chrono::seconds(2);
// Until the host is asked again whether it takes a connection.
constexpr auto kNoRoom = std::chrono::milliseconds(5);

constexpr std::string_view kNoHost = "The host of this sandbox does not answer.";

// RFC 1928 has no answer for its predecessor, which knows addresses only and says so like this.
constexpr std::string_view kSocks4Refused("\0\x5b\0\0\0\0\0\0", 8);

SocksReply socks_reply(EgressCode code) {
  switch (code) {
    case EgressCode::opened:
      return SocksReply::succeeded;
    case EgressCode::not_on_list:
    case EgressCode::address_refused:
      return SocksReply::not_allowed;
    case EgressCode::unresolvable:
    case EgressCode::unreachable:
    case EgressCode::too_slow:
      return SocksReply::host_unreachable;
    case EgressCode::malformed:
    case EgressCode::too_many:
      break;
  }
  return SocksReply::failed;
}

// So that a client does not take the end of a tunnel that broke for the end of what was sent.
void reset_on_close(int socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

bool is_gone(int socket) {
  pollfd entry{socket, 0, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

Client::Client(sys::UniqueFd socket, DoorShared& shared, std::string host, std::uint16_t port)
    : socket_(std::move(socket)), shared_(shared), speech_(Speech::transparent) {
  wanted_ = {.door = EgressDoor::transparent, .host = std::move(host), .port = port};
}

Client::Client(sys::UniqueFd socket, DoorShared& shared)
    : socket_(std::move(socket)), shared_(shared) {
  wake_at_ = Clock::now() + kHearing;
}

bool Client::begin() {
  if (speech_ == Speech::transparent) {
    ask(wanted_.door, wanted_.host, wanted_.port);
  } else {
    hear();
  }
  return phase_ != Phase::over;
}

bool Client::ready(Side side, std::uint32_t events) {
  switch (phase_) {
    case Phase::hearing:
      hear();
      break;
    case Phase::asking:
      // The program's side is watched for nothing but its complete end.
      if (side == Side::host) {
        go_on_asking();
      } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
        reset();
      }
      break;
    case Phase::relaying:
      relay(side, events);
      break;
    case Phase::parting:
      go_on_parting();
      break;
    case Phase::over:
      break;
  }
  return phase_ != Phase::over;
}

bool Client::time_came() {
  wake_at_.reset();
  switch (phase_) {
    case Phase::hearing:
      if (speech_ == Speech::http) {
        part(http_bad_request("it did not arrive within 10 seconds"));
      } else {
        reset();
      }
      break;
    case Phase::asking:
      go_on_asking();
      break;
    case Phase::parting:
      reset();
      break;
    case Phase::relaying:
    case Phase::over:
      break;
  }
  return phase_ != Phase::over;
}

Client::Interest Client::interest(Side side) const {
  const int fd = side == Side::program ? socket_.get() : link_ ? link_->fd() : host_.get();
  switch (phase_) {
    case Phase::hearing:
      if (side == Side::program) return {fd, EPOLLIN};
      break;
    case Phase::asking:
      if (side == Side::program) return {fd, 0, true};
      return {fd, EPOLLIN};
    case Phase::relaying: {
      const Flow& read = side == Side::program ? *out_ : *in_;
      const Flow& written = side == Side::program ? *in_ : *out_;
      std::uint32_t events = 0;
      if (read.wants_source()) events |= EPOLLIN;
      if (written.wants_sink()) events |= EPOLLOUT;
      // Where the host's bytes have all gone, its complete end is the tunnel's; before, it would be
      // told again and again.
      return {fd, events, side == Side::host && in_->state() == Flow::State::done};
    }
    case Phase::parting:
      if (side == Side::program) return {fd, buffer_.empty() ? EPOLLIN : EPOLLOUT};
      break;
    case Phase::over:
      break;
  }
  return {fd, 0};
}

// -- What the client wants
// --------------------------------------------------------------------------

void Client::hear() {
  while (phase_ == Phase::hearing) {
    std::array<char, 8 * 1024> bytes;
    const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return reset();
    buffer_.append(bytes.data(), static_cast<std::size_t>(got));
    understand();
  }
}

void Client::understand() {
  if (speech_ == Speech::unknown) {
    if (buffer_.front() == '\x04') return part(kSocks4Refused);
    speech_ = buffer_.front() == '\x05' ? Speech::socks : Speech::http;
  }
  if (speech_ == Speech::socks) {
    understand_socks();
  } else {
    understand_http();
  }
}

void Client::understand_http() {
  const auto found = find_head_end(buffer_);
  if (const auto* bad = std::get_if<BadRequest>(&found)) return part(http_bad_request(bad->why));
  const auto end = std::get<HeadEnd>(found).end;
  if (!end) return;
  auto read = read_request_head(std::string_view(buffer_).substr(0, *end));
  if (const auto* bad = std::get_if<BadRequest>(&read)) return part(http_bad_request(bad->why));
  buffer_.erase(0, *end);
  request_ = std::move(std::get<ProxyRequest>(read));
  // Of a target that is refused anyway the refusal is the answer, and for the host to give.
  if (!request_->host_agrees && shared_.names.has(request_->host, request_->port)) {
    return part(http_bad_request("its Host is another one than its target"));
  }
  ask(request_->tunnel ? EgressDoor::http_connect : EgressDoor::http_request, request_->host,
      request_->port);
}

void Client::understand_socks() {
  if (!greeted_) {
    const SocksGreeting greeting = read_socks_greeting(buffer_);
    if (greeting.reading == SocksReading::needs_more) return;
    if (greeting.reading == SocksReading::malformed || !greeting.goes_without) {
      return part(encode_socks_choice(false));
    }
    const std::string choice = encode_socks_choice(true);
    // Fits what a socket takes that nothing was written to.
    if (send(socket_.get(), choice.data(), choice.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      return reset();
    }
    greeted_ = true;
    buffer_.erase(0, greeting.size);
  }
  const SocksRequest request = read_socks_request(buffer_);
  if (request.reading == SocksReading::needs_more) return;
  if (request.reading == SocksReading::malformed) return part(encode_socks_reply(request.fault));
  if (request.command != SocksCommand::connect) {
    return part(encode_socks_reply(SocksReply::command_not_supported));
  }
  if (request.host.empty() || request.port == 0) {
    return part(encode_socks_reply(SocksReply::failed));
  }
  buffer_.erase(0, request.size);
  ask(EgressDoor::socks, request.host, request.port);
}

// -- What the host says
// -----------------------------------------------------------------------------

void Client::ask(EgressDoor door, std::string host, std::uint16_t port) {
  phase_ = Phase::asking;
  wanted_ = {.door = door, .host = std::move(host), .port = port};
  wake_at_.reset();
  link_.emplace(shared_.host_path, wanted_);
  go_on_asking();
}

void Client::go_on_asking() {
  switch (link_->advance()) {
    case HostLink::State::no_room:
      wake_at_ = Clock::now() + kNoRoom;
      return;
    case HostLink::State::asked:
      return;
    case HostLink::State::failed:
      return refuse({.code = EgressCode::unreachable, .sentence = std::string(kNoHost)});
    case HostLink::State::answered:
      return answered();
  }
}

void Client::answered() {
  if (link_->answer().code != EgressCode::opened) return refuse(link_->answer());
  host_ = link_->take();
  link_.reset();
  phase_ = Phase::relaying;
  out_.emplace(socket_.get(), host_.get());
  in_.emplace(host_.get(), socket_.get());
  // A host that ends its direction takes more in the other, for as long as the program has any; one
  // that takes nothing either has broken off. Before an answer that was begun it makes no
  // difference.
  in_->check_end_by([this] {
    const bool no_answer = in_->filtered() && !response_.passed();
    return no_answer || out_->state() == Flow::State::done || !is_gone(host_.get());
  });
  if (request_ && !request_->tunnel) {
    begin_http_relay();
  } else {
    begin_relay();
  }
  out_->pump(shared_.pipes);
  in_->pump(shared_.pipes);
  settle();
}

// By value: the link that it may come from ends here.
void Client::refuse(EgressAnswer answer) {
  link_.reset();
  switch (speech_) {
    case Speech::http:
      return part(http_refusal(answer));
    case Speech::socks:
      return part(encode_socks_reply(socks_reply(answer.code)));
    case Speech::unknown:
    case Speech::transparent:
      return reset();
  }
}

// -- The tunnel
// -------------------------------------------------------------------------------------

void Client::begin_relay() {
  if (speech_ == Speech::http) in_->put(http_connected());
  if (speech_ == Speech::socks) in_->put(encode_socks_reply(SocksReply::succeeded));
  // What the client said ahead.
  out_->put(std::exchange(buffer_, {}));
}

// One request and its answer, whose ends have to be found: the connection ends with them.
void Client::begin_http_relay() {
  if (request_->body.form == BodyLength::Form::chunked) chunks_.emplace();
  body_left_ = request_->body.bytes;
  out_->put(std::exchange(request_->forwarded_head, {}));
  if (const auto ahead = pass_body(std::exchange(buffer_, {}))) out_->put(*ahead);
  out_->filter_by([this](std::string_view bytes, bool&) { return pass_body(bytes); });
  in_->filter_by([this](std::string_view bytes, bool& end) { return pass_response(bytes, end); });
}

// What lies behind the body is another request, which nobody has judged: it goes nowhere.
std::optional<std::string> Client::pass_body(std::string_view bytes) {
  if (!chunks_) {
    const std::size_t taken =
        static_cast<std::size_t>(std::min<std::uint64_t>(body_left_, bytes.size()));
    body_left_ -= taken;
    return std::string(bytes.substr(0, taken));
  }
  const std::size_t taken = chunks_->follow(bytes);
  body_broken_ = body_broken_ || chunks_->broken();
  if (body_broken_) return std::nullopt;
  return std::string(bytes.substr(0, taken));
}

std::optional<std::string> Client::pass_response(std::string_view bytes, bool& end) {
  const bool ended = bytes.empty();
  response_.put(bytes);
  std::string passed = response_.take();
  if (response_.passed()) return passed;
  if (!response_.broken() && !ended) return passed;
  end = true;
  if (response_.began()) return std::nullopt;
  return http_bad_gateway(ended ? "The server closed the connection without an answer."
                                : "The server's answer is no HTTP.");
}

void Client::relay(Side side, std::uint32_t events) {
  if (side == Side::program && (events & EPOLLERR) != 0) return reset();
  // What the host said before it closed is still to be had.
  const bool readable = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
  const bool writable = (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
  Flow& read = side == Side::program ? *out_ : *in_;
  Flow& written = side == Side::program ? *in_ : *out_;
  if (readable && read.wants_source()) read.pump(shared_.pipes);
  if (writable && written.wants_sink()) written.pump(shared_.pipes);
  settle();
}

// After the flows were moved on.
void Client::settle() {
  if (body_broken_) {
    if (response_.began()) return reset();
    return part(http_bad_request("its chunked body is malformed"));
  }
  if (in_->filtered() && response_.passed()) {
    in_->filter_by({});
    in_->pump(shared_.pipes);
  }
  // Where only the way out is broken, the server may have answered before it had heard all.
  if (in_->state() == Flow::State::failed) {
    if (!in_->filtered() || response_.began()) return reset();
    return part(http_bad_gateway("The server closed the connection without an answer."));
  }
  // Nor can the program, once it has broken off: the host shall not take what came for all.
  if (out_->state() == Flow::State::failed && is_gone(socket_.get())) return reset();
  if (in_->state() != Flow::State::done) return;
  // A host that has closed altogether takes nothing either.
  if (out_->state() != Flow::State::moving || is_gone(host_.get())) phase_ = Phase::over;
}

// -- Its end
// ----------------------------------------------------------------------------------------

void Client::part(std::string_view last_word) {
  phase_ = Phase::parting;
  host_.reset();
  buffer_ = last_word;
  wake_at_ = Clock::now() + kParting;
  go_on_parting();
}

// A socket that is closed with something unread takes back what it said last; so what comes is
// read, for a while.
void Client::go_on_parting() {
  while (!buffer_.empty()) {
    const ssize_t sent =
        send(socket_.get(), buffer_.data(), buffer_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) return reset();
    buffer_.erase(0, static_cast<std::size_t>(sent));
    if (buffer_.empty()) shutdown(socket_.get(), SHUT_WR);
  }
  std::array<char, 16 * 1024> ignored;
  for (int turns = 0; turns < 16; ++turns) {
    const ssize_t got = recv(socket_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      phase_ = Phase::over;
      return;
    }
  }
}

void Client::reset() {
  reset_on_close(socket_.get());
  phase_ = Phase::over;
}

}  // namespace casemate::guest
