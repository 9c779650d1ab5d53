#pragma once

// For tests: what a call's sockets lead to.

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A server of the host's, which says back what it hears, and counts.
class EchoServer {
 public:
  EchoServer() : socket_(sys::make_stream_socket()) {}
  ~EchoServer() { close(); }
  int socket() const { return socket_.get(); }
  void serve() {
    sys::start_listening(socket_.get());
    thread_ = std::jthread([this] { run(); });
  }
  void close() {
    sys::raise_event(stop_.get());
    if (thread_.joinable()) thread_.join();
    socket_.reset();
  }
  std::size_t served() const { return served_; }
  std::size_t most() const { return most_; }

 private:
  void run() {
    std::vector<sys::UniqueFd> clients;
    while (true) {
      std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      for (const sys::UniqueFd& client : clients) entries.push_back({client.get(), POLLIN, 0});
      sys::poll_until(entries, std::nullopt);
      if (entries[0].revents != 0) return;
      for (std::size_t i = 0; i < clients.size(); ++i) {
        if (entries[i + 2].revents != 0 && !echo(clients[i].get())) clients[i].reset();
      }
      std::erase_if(clients, [](const sys::UniqueFd& client) { return !client; });
      if (entries[1].revents == 0) continue;
      while (sys::UniqueFd client = sys::accept_connection(socket_.get())) {
        clients.push_back(std::move(client));
        ++served_;
      }
      most_ = std::max(most_.load(), clients.size());
    }
  }

  // Sends back what came. False once the client is gone, which it may be at either step.
  static bool echo(int client) try {
    std::string buffer(4096, '\0');
    const auto got = sys::receive_bytes(client, buffer, sys::Blocking::no);
    if (got.bytes == 0) return got.would_block;
    sys::send_message(client, std::span(buffer).first(got.bytes), {}, sys::Blocking::yes);
    return true;
  } catch (const std::system_error&) {
    return false;
  }

  sys::UniqueFd socket_;
  sys::UniqueFd stop_ = sys::make_event();
  std::atomic<std::size_t> served_ = 0;
  std::atomic<std::size_t> most_ = 0;
  std::jthread thread_;
};

}  // namespace casemate::guest
