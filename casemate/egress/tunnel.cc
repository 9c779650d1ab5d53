#include "casemate/egress/tunnel.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>
#include <variant>

#include "casemate/base/utf8.h"
#include "casemate/egress/origin_socket.h"
#include "casemate/sys/socket.h"

namespace casemate {
namespace {

// Of one tunnel before others have their turn.
constexpr std::size_t kTurnBytes = 1024 * 1024;
constexpr std::size_t kHelloChunk = 4096;
// EgressOptions::max_buffers. Of what is left for a call a tunnel may have a part.
constexpr std::uint64_t kMostBuffer = 256 * 1024;
constexpr std::uint64_t kLeastBuffer = 16 * 1024;
constexpr std::uint64_t kBuffers = 3;
constexpr std::uint64_t kPartOfBuffers = 128;
// RFC 8446, 6: a fatal `access_denied`, in a record of the version that every client reads.
constexpr std::string_view kAccessDenied{"\x15\x03\x01\x00\x02\x02\x31", 7};

std::string text_of_error(int error_number) {
  return std::generic_category().message(error_number);
}

std::string_view text_of(EgressDoor door) {
  switch (door) {
    case EgressDoor::unnamed:
      break;
    case EgressDoor::transparent:
      return "transparent";
    case EgressDoor::http_connect:
      return "CONNECT";
    case EgressDoor::http_request:
      return "HTTP";
    case EgressDoor::socks:
      return "SOCKS";
  }
  return "unnamed";
}

}  // namespace

Tunnel::Tunnel(std::uint64_t number, sys::UniqueFd client, TunnelContext& context)
    : number_(number),
      context_(context),
      born_(context.now),
      until_(context.now + context.options.request_patience),
      moved_(context.now) {
  client_.socket = std::move(client);
  take_urgent_data_inline(client_.socket.get());
}

Tunnel::~Tunnel() {
  context_.left_buffers += reserved_;
  context_.left_out += out_.under_way();
  context_.left_in += in_.under_way();
  if (origin_.socket) {
    if (!ended_by_itself_) break_off(origin_.socket.get());
    sys::shut_down(origin_.socket.get());
  }
  sys::shut_down(client_.socket.get());
}

// -- What happens ------------------------------------------------------------------------------

void Tunnel::ready(Side side, std::uint32_t events) {
  RelayEnd& end = side == Side::client ? client_ : origin_;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) end.readable = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) end.writable = true;
  if (side == Side::client && (events & EPOLLHUP) != 0) client_gone_ = true;
  if (side == Side::origin && phase_ == Phase::dialling &&
      (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
    dial_ended(pending_error(origin_.socket.get()));
  }
  go_on();
}

void Tunnel::go_on() {
  wants_turn_ = false;
  try {
    step();
  } catch (const std::exception& error) {
    end(fmt::format("the host failed: {}", error.what()));
  }
}

void Tunnel::step() {
  if (phase_ == Phase::request) read_request();
  // Of one that hangs up with its answer outstanding nothing can be the end of anything.
  if (phase_ != Phase::request && client_gone_ && !in_.ended()) return end("the program hung up");
  if (phase_ == Phase::hello) read_hello();
  if (phase_ == Phase::hello || phase_ == Phase::open) move();
}

void Tunnel::time_has_come() {
  if (context_.now < deadline()) return;
  if (context_.now >= born_ + context_.options.max_age) return end("older than a tunnel may get");
  switch (phase_) {
    case Phase::request:
      // Nobody who means it takes so long; there is nothing to answer to.
      return end("");
    case Phase::resolving:
      return refuse(EgressCode::too_slow,
                    fmt::format("Resolving {} took too long.", verdict_.host.text),
                    EgressDecision::allowed, "resolving took too long");
    case Phase::dialling:
      dial_ended(ETIMEDOUT);
      return go_on();
    case Phase::hello:
      return held_.empty() ? end("idle") : cut_off("the client's hello took too long");
    case Phase::open:
      return end("idle");
    case Phase::over:
      return;
  }
}

sys::SteadyTime Tunnel::deadline() const {
  const sys::SteadyTime latest = born_ + context_.options.max_age;
  const bool by_phase = phase_ == Phase::request || phase_ == Phase::resolving ||
                        phase_ == Phase::dialling || (phase_ == Phase::hello && !held_.empty());
  return std::min(latest, by_phase ? until_ : moved_ + context_.options.idle_patience);
}

// -- The request -------------------------------------------------------------------------------

void Tunnel::read_request() {
  std::array<char, kMaxEgressFrame> buffer;
  while (client_.readable) {
    // Exactly the frame: what stands behind it is the tunnel's.
    const ssize_t count =
        recv(client_.socket.get(), buffer.data(), frame_bytes_ - frame_.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      client_.readable = false;
      return;
    }
    if (count <= 0) return end("");
    frame_.append(buffer.data(), static_cast<std::size_t>(count));
    if (frame_.size() < frame_bytes_) continue;
    if (frame_bytes_ == kEgressLengthBytes) {
      const auto length =
          egress_frame_length(std::span<const char, kEgressLengthBytes>(frame_.data(), 2));
      if (!length) {
        return refuse(EgressCode::malformed, "What was sent is no request.", EgressDecision::denied,
                      "malformed request");
      }
      frame_bytes_ += *length;
      continue;
    }
    const auto request = decode_egress_request(std::string_view(frame_).substr(kEgressLengthBytes));
    frame_ = {};
    if (!request) {
      return refuse(EgressCode::malformed, "What was sent is no request.", EgressDecision::denied,
                    "malformed request");
    }
    return take_request(*request);
  }
}

// Nothing was asked for yet, but a program that looks for a name means to.
void Tunnel::take_look_up(const std::string& name) {
  const auto parsed = parse_host_name(name);
  const auto* host = std::get_if<HostName>(&parsed);
  verdict_.host.text = host == nullptr ? escape_for_display(name) : host->text;
  verdict_.port = 0;
  refuse(EgressCode::not_on_list, policy_sentence("The name is not known in this sandbox."),
         EgressDecision::denied, "looked up, not on the list");
}

void Tunnel::take_request(const EgressRequest& request) {
  door_ = request.door;
  if (request.port == 0) return take_look_up(request.host);
  verdict_ = decide(context_.options.allow, request);
  if (verdict_.code != EgressCode::opened) {
    if (verdict_.code == EgressCode::malformed) {
      verdict_.host.text = escape_for_display(request.host);
      verdict_.port = request.port;
    }
    return refuse(verdict_.code, verdict_.sentence, EgressDecision::denied, verdict_.reason);
  }
  record_ = context_.book.begin({.host = verdict_.host.text,
                                 .port = verdict_.port,
                                 .decision = EgressDecision::allowed,
                                 .reason = "allowed by " + verdict_.entry});
  if (verdict_.host.form != HostName::Form::name) {
    // The operator wrote this very address.
    addresses_ = {IpAddress::parse(verdict_.host.text).value()};
    dial_until_ = context_.now + context_.options.dial_patience;
    return dial_next();
  }
  phase_ = Phase::resolving;
  until_ = context_.now + context_.options.resolve_patience;
  if (!context_.resolve(number_, verdict_.host.text)) {
    refuse(EgressCode::too_many, "The host can look up no more names for now.",
           EgressDecision::allowed, "not resolved: too many names are being looked up");
  }
}

// -- The address -------------------------------------------------------------------------------

void Tunnel::resolved(const ResolverPool::Result& result) {
  if (phase_ != Phase::resolving) return;
  if (result.failure || result.addresses.empty()) {
    const std::string why = result.failure.value_or("it has no address");
    return refuse(EgressCode::unresolvable,
                  fmt::format("{} cannot be resolved.", verdict_.host.text),
                  EgressDecision::allowed, "not resolved: " + escape_for_display(why));
  }
  AddressVerdict verdict = check_addresses(result.addresses);
  if (verdict.permitted.empty()) {
    return refuse(EgressCode::address_refused,
                  policy_sentence(fmt::format("{} leads to an address that no name may lead to.",
                                              verdict_.host.text)),
                  EgressDecision::denied, verdict.reason);
  }
  addresses_ = std::move(verdict.permitted);
  dial_until_ = context_.now + context_.options.dial_patience;
  try {
    dial_next();
  } catch (const std::exception& error) {
    return end(fmt::format("the host failed: {}", error.what()));
  }
  go_on();
}

void Tunnel::reserve_buffers() {
  if (buffer_ != 0) return;
  buffer_ = std::clamp(context_.left_buffers / kPartOfBuffers, kLeastBuffer, kMostBuffer);
  reserved_ = std::min(context_.left_buffers, kBuffers * buffer_);
  context_.left_buffers -= reserved_;
  bound_sent(client_.socket.get(), buffer_);
}

void Tunnel::dial_next() {
  phase_ = Phase::dialling;
  reserve_buffers();
  while (next_address_ < addresses_.size() && context_.now < dial_until_) {
    const IpAddress& address = addresses_[next_address_++];
    origin_ = {};
    origin_.socket = begin_to_connect(address, verdict_.port, buffer_, dial_error_);
    if (!origin_.socket) continue;
    until_ = std::min(dial_until_, context_.now + context_.options.address_patience);
    // Reports a connection that is there already, too.
    context_.watch_origin(number_, origin_.socket.get());
    return;
  }
  origin_ = {};
  if (sys::is_shortage(dial_error_)) {
    return refuse(EgressCode::too_many, "The host can take no more connections for now.",
                  EgressDecision::allowed, "not dialled: " + text_of_error(dial_error_));
  }
  const bool slow = dial_error_ == ETIMEDOUT || next_address_ < addresses_.size();
  refuse(slow ? EgressCode::too_slow : EgressCode::unreachable,
         fmt::format("{} port {} cannot be connected to: {}.", verdict_.host.text, verdict_.port,
                     text_of_error(slow ? ETIMEDOUT : dial_error_)),
         EgressDecision::allowed,
         "not connected: " + text_of_error(slow ? ETIMEDOUT : dial_error_));
}

void Tunnel::dial_ended(int error_number) {
  try {
    if (error_number == 0) return open();
    dial_error_ = error_number;
    dial_next();
  } catch (const std::exception& error) {
    end(fmt::format("the host failed: {}", error.what()));
  }
}

void Tunnel::open() {
  moved_ = context_.now;
  const bool looks = context_.options.server_names == ServerNameCheck::yes &&
                     verdict_.host.form == HostName::Form::name;
  phase_ = looks ? Phase::hello : Phase::open;
  frame_ = {};
  send_to_client(encode_egress(EgressAnswer{}));
}

// -- The client's first bytes ------------------------------------------------------------------

void Tunnel::read_hello() {
  while (phase_ == Phase::hello && client_.readable) {
    std::array<char, kHelloChunk> buffer;
    const ssize_t count = recv(client_.socket.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      client_.readable = false;
      return;
    }
    if (count < 0) return end("the program hung up");
    if (count > 0) {
      if (held_.empty()) until_ = context_.now + context_.options.hello_patience;
      moved_ = context_.now;
      held_.append(buffer.data(), static_cast<std::size_t>(count));
    }
    judge_hello(count == 0);
  }
}

void Tunnel::judge_hello(bool at_end) {
  if (!is_tls_) {
    const std::optional<bool> tls = begins_as_tls(held_);
    if (tls.value_or(false)) {
      is_tls_ = true;
    } else if (tls || at_end) {
      if (verdict_.port == kHttpsPort && !held_.empty()) {
        return cut_off("port 443 is for TLS, and this is none");
      }
      out_.put_first(std::exchange(held_, {}));
      phase_ = Phase::open;
      return;
    } else {
      return;
    }
  }
  if (at_end) return cut_off("the client's hello is incomplete");
  const std::size_t fed = std::exchange(hello_fed_, held_.size());
  switch (hello_.feed(std::string_view(held_).substr(fed))) {
    case ClientHelloReader::State::more:
      return;
    case ClientHelloReader::State::malformed:
      return cut_off("the client's hello is malformed");
    case ClientHelloReader::State::complete:
      break;
  }
  if (!hello_.server_name()) return cut_off("the client names no server (SNI)");
  const auto named = parse_host_name(*hello_.server_name());
  const auto* name = std::get_if<HostName>(&named);
  if (name == nullptr || *name != verdict_.host) {
    return cut_off(fmt::format("the client names another server (SNI): {}",
                               escape_for_display(*hello_.server_name())));
  }
  if (hello_.encrypted()) {
    return cut_off("the client may name another server in secret (ECH)");
  }
  out_.put_first(std::exchange(held_, {}));
  phase_ = Phase::open;
}

// -- The bytes ---------------------------------------------------------------------------------

void Tunnel::move() {
  const std::uint64_t before = out_.bytes() + in_.bytes();
  Relay::State out = Relay::State::waits;
  if (phase_ == Phase::open) {
    out = out_.run(client_, origin_, context_.pipes, kTurnBytes, context_.left_out);
  }
  const Relay::State in = in_.run(origin_, client_, context_.pipes, kTurnBytes, context_.left_in);
  if (out_.bytes() + in_.bytes() != before) moved_ = context_.now;
  if (out_.over_bound() || in_.over_bound()) return end("over the bound of bytes");
  if (out_.source_gone()) return end("the program hung up");
  if (out == Relay::State::broken || in == Relay::State::broken) return end("broken off");
  if (out_.ended() && in_.ended()) {
    ended_by_itself_ = true;
    return end("");
  }
  wants_turn_ = out == Relay::State::more || in == Relay::State::more;
}

// -- The end -----------------------------------------------------------------------------------

void Tunnel::send_to_client(const std::string& bytes) noexcept {
  // The buffer of a fresh connection takes it; a client that is gone does not want it.
  static_cast<void>(
      send(client_.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

void Tunnel::refuse(EgressCode code, const std::string& sentence, EgressDecision decision,
                    const std::string& reason) {
  send_to_client(encode_egress(EgressAnswer{code, sentence.substr(0, kMaxEgressFrame - 1)}));
  write_record(decision, reason);
}

void Tunnel::cut_off(const std::string& reason) {
  // The alert has its place where the server's first record would have stood.
  if (is_tls_ && in_.bytes() == 0) send_to_client(std::string(kAccessDenied));
  write_record(EgressDecision::denied, reason);
}

void Tunnel::end(const std::string& why) noexcept {
  if (phase_ == Phase::over) return;
  if (record_) {
    write_record(EgressDecision::allowed, why);
  } else {
    phase_ = Phase::over;
  }
}

void Tunnel::write_record(EgressDecision decision, const std::string& reason) noexcept {
  phase_ = Phase::over;
  wants_turn_ = false;
  try {
    EgressRecord record{.host = verdict_.host.text, .port = verdict_.port, .decision = decision};
    record.reason = reason;
    if (decision == EgressDecision::allowed) {
      record.reason = "allowed by " + verdict_.entry;
      if (!reason.empty()) record.reason += "; " + reason;
    }
    record.bytes_out = out_.bytes();
    record.bytes_in = in_.bytes();
    const EgressRecordBook::Place place = record_ ? *record_ : context_.book.begin(record);
    context_.book.finish(place, record);
    // A flood of refusals is none of the log's.
    if (place.kind != EgressRecordBook::Place::Kind::counted ||
        decision == EgressDecision::allowed) {
      write_log(context_.options.log, LogLevel::info,
                fmt::format("egress of call {}: {} port {} ({}): {}: {}; {} bytes out, {} in",
                            context_.options.call, record.host, record.port, text_of(door_),
                            to_string(decision), record.reason, record.bytes_out, record.bytes_in));
    }
  } catch (const std::exception& error) {
    write_log(context_.options.log, LogLevel::error,
              std::string("egress: a record is lost: ") + error.what());
  }
}

}  // namespace casemate
