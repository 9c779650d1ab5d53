#pragma once

// A door's connection to the host, up to where it is a tunnel (core/egress_frame.h).

#include <cstdint>
#include <string>

#include "casemate/core/egress_frame.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

class HostLink {
 public:
  enum class State : std::uint8_t {
    // The host takes no more connections for now: try again in a moment.
    no_room,
    // Waits for the answer: `fd` becomes readable.
    asked,
    answered,
    // There is no host.
    failed,
  };

  // `path` is the socket's.
  HostLink(std::string path, const EgressRequest& request);

  // Goes on as far as it can without waiting.
  State advance();
  State state() const { return state_; }

  // -1 before `asked`.
  int fd() const { return socket_.get(); }
  // Once answered.
  const EgressAnswer& answer() const { return answer_; }
  // The tunnel, non-blocking, after the answer `opened`.
  sys::UniqueFd take() { return std::move(socket_); }

 private:
  State connect_and_ask();
  State read_answer();
  bool receive(std::size_t size);

  std::string path_;
  std::string request_;
  sys::UniqueFd socket_;
  State state_ = State::no_room;
  std::string frame_;
  EgressAnswer answer_;
};

}  // namespace casemate::guest
