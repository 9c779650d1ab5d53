#pragma once

// One connection of a door's, from its request to its end.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "casemate/egress/client_hello.h"
#include "casemate/egress/decision.h"
#include "casemate/egress/gateway.h"
#include "casemate/egress/record_book.h"
#include "casemate/egress/relay.h"
#include "casemate/sys/poll.h"

namespace casemate {

// What the tunnels of a call share. Used by the thread that moves them.
struct TunnelContext {
  const EgressOptions& options;
  EgressRecordBook& book;
  RelayPipes pipes{};
  std::uint64_t left_out = 0;
  std::uint64_t left_in = 0;
  std::uint64_t left_buffers = 0;
  sys::SteadyTime now{};
  // Asks for a name; the answer comes by `Tunnel::resolved`. False: it cannot be asked for now.
  std::function<bool(std::uint64_t tunnel, const std::string& name)> resolve{};
  // Reports on the tunnel's second socket from now on. Throws `std::system_error`.
  std::function<void(std::uint64_t tunnel, int socket)> watch_origin{};
};

// A state machine without a thread: told of what happened, it does what can be done without
// waiting. Never throws; what goes wrong ends it.
class Tunnel {
 public:
  Tunnel(std::uint64_t number, sys::UniqueFd client, TunnelContext& context);
  // Ends both connections, also for a process that was forked meanwhile and holds them. One that
  // did not end by itself is broken off, so that nobody takes a part for the whole: the origin is
  // sent a reset, and the client finds that this side takes nothing more either (egress_frame.h).
  ~Tunnel();
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  enum class Side : std::uint8_t { client, origin };
  // `events` of epoll.
  void ready(Side side, std::uint32_t events);
  void resolved(const ResolverPool::Result& result);
  void time_has_come();
  // Goes on after it let others have their turn.
  void go_on();

  // When it wants to be told of the time.
  sys::SteadyTime deadline() const;
  bool wants_turn() const { return wants_turn_; }
  bool over() const { return phase_ == Phase::over; }

  // Breaks it off, if it is not over, for this reason of the host's.
  void end(const std::string& why) noexcept;

 private:
  enum class Phase : std::uint8_t { request, resolving, dialling, hello, open, over };

  void step();
  void read_request();
  void take_look_up(const std::string& name);
  void take_request(const EgressRequest& request);
  void reserve_buffers();
  void dial_next();
  void dial_ended(int error_number);
  void open();
  void read_hello();
  void judge_hello(bool at_end);
  void move();

  void refuse(EgressCode code, const std::string& sentence, EgressDecision decision,
              const std::string& reason);
  // After `opened`: the client is told nothing more but, if it speaks TLS, by an alert.
  void cut_off(const std::string& reason);
  void send_to_client(const std::string& bytes) noexcept;
  void write_record(EgressDecision decision, const std::string& reason) noexcept;

  const std::uint64_t number_;
  TunnelContext& context_;
  Phase phase_ = Phase::request;
  RelayEnd client_;
  RelayEnd origin_;
  bool client_gone_ = false;
  bool ended_by_itself_ = false;
  bool wants_turn_ = false;
  const sys::SteadyTime born_;
  // Of the phase.
  sys::SteadyTime until_;
  sys::SteadyTime moved_;

  std::string frame_;
  std::size_t frame_bytes_ = kEgressLengthBytes;
  EgressDoor door_ = EgressDoor::unnamed;
  EgressVerdict verdict_;
  std::optional<EgressRecordBook::Place> record_;

  // Of one buffer, and what was taken off the call's share for all of them.
  std::uint64_t buffer_ = 0;
  std::uint64_t reserved_ = 0;

  std::vector<IpAddress> addresses_;
  std::size_t next_address_ = 0;
  sys::SteadyTime dial_until_;
  int dial_error_ = 0;

  // Of the client's, not passed on before it was looked at, and how much of it was.
  std::string held_;
  std::size_t hello_fed_ = 0;
  bool is_tls_ = false;
  ClientHelloReader hello_;
  Relay out_{&in_};
  Relay in_{&out_};
};

}  // namespace casemate
