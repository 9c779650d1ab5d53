#pragma once

// One connection of a program to a door: what it wants, what the host says to that, and then the
// tunnel between the two.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/core/egress_frame.h"
#include "casemate/guest/agent/doors/chunked_body.h"
#include "casemate/guest/agent/doors/door_names.h"
#include "casemate/guest/agent/doors/flow.h"
#include "casemate/guest/agent/doors/host_link.h"
#include "casemate/guest/agent/doors/request_head.h"
#include "casemate/guest/agent/doors/response_head.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// What all clients of a call's doors share.
struct DoorShared {
  // Of the host's socket.
  std::string host_path;
  DoorNames names;
  PipePool pipes{};
};

class Client {
 public:
  enum class Side : std::uint8_t { program, host };

  // What is to be watched, epoll's events; `fd` -1: nothing is there.
  struct Interest {
    int fd = -1;
    std::uint32_t events = 0;
    // Whether its complete end is of interest also where no event is.
    bool end = false;
  };

  // Came to a listed host's own address.
  Client(sys::UniqueFd socket, DoorShared& shared, std::string host, std::uint16_t port);
  // Came to the proxy.
  Client(sys::UniqueFd socket, DoorShared& shared);

  // Something happened on that side. False: it is over.
  bool ready(Side side, std::uint32_t events);
  // `wake_at` has come.
  bool time_came();
  // Goes on with what it can do by itself; to be called once, at first.
  bool begin();

  Interest interest(Side side) const;
  std::optional<sys::SteadyTime> wake_at() const { return wake_at_; }

 private:
  enum class Phase : std::uint8_t {
    hearing,   // what the client of the proxy wants
    asking,    // the host
    relaying,  // the tunnel
    parting,   // a last word is on its way, then the client shall close
    over
  };
  enum class Speech : std::uint8_t { unknown, http, socks, transparent };

  void hear();
  void understand();
  void understand_http();
  void understand_socks();
  void ask(EgressDoor door, std::string host, std::uint16_t port);
  void go_on_asking();
  void answered();
  void begin_relay();
  void begin_http_relay();
  std::optional<std::string> pass_body(std::string_view bytes);
  std::optional<std::string> pass_response(std::string_view bytes, bool& end);
  void relay(Side side, std::uint32_t events);
  void settle();
  void refuse(EgressAnswer answer);
  void part(std::string_view last_word);
  void go_on_parting();
  void reset();

  sys::UniqueFd socket_;
  DoorShared& shared_;
  Phase phase_ = Phase::hearing;
  Speech speech_ = Speech::unknown;
  bool greeted_ = false;
  // What came and was not taken yet, or, parting, what is still to be said.
  std::string buffer_;
  EgressRequest wanted_;
  std::optional<ProxyRequest> request_;
  std::optional<HostLink> link_;
  sys::UniqueFd host_;
  std::optional<Flow> out_;
  std::optional<Flow> in_;
  std::uint64_t body_left_ = 0;
  std::optional<ChunkedBody> chunks_;
  bool body_broken_ = false;
  ResponseHead response_;
  std::optional<sys::SteadyTime> wake_at_;
};

}  // namespace casemate::guest
