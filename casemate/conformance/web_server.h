#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "casemate/sys/tcp.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::conformance {

// A web server on the host's loopback that answers 204 to whatever asks: where a sandbox has to
// come through, or must not. One connection at a time, each for a bounded time; ends with the
// object.
class WebServer {
 public:
  // Throws `std::system_error`.
  WebServer();
  ~WebServer();
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

  std::uint16_t port() const { return listener_.port; }
  // "http://127.0.0.1:PORT/".
  std::string url() const;
  // Connections so far.
  int connections() const { return connections_; }

 private:
  void serve();
  void answer(int connection) const;

  sys::LoopbackListener listener_;
  sys::UniqueFd stopped_;
  std::atomic<int> connections_{0};
  // Last: it uses all of the others.
  std::thread thread_;
};

}  // namespace casemate::conformance
