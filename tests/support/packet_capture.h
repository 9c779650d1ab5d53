#pragma once

// For tests: every packet that passes the loopback of a network of the test's own.

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "casemate/sys/error.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/own_network.h"

namespace casemate {

// One direction of a flow, as "tcp 203.0.113.7:443"; of other protocols "ip PROTOCOL address:0".
class PacketCapture {
 public:
  // Throws `std::system_error`; EPERM without the right to see packets.
  PacketCapture() : socket_(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    if (!socket_) sys::throw_errno("socket(AF_PACKET)");
    // Room for what comes until a test reads it, at its end; as much as anybody may have where this
    // program has no right to more.
    const int room = 8 << 20;
    if (setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0) {
      setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    }
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(ETH_P_ALL);
    at.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) {
      sys::throw_errno("bind(AF_PACKET)");
    }
  }

  // Where packets went so far, up to the one that `last` (of the same form) names: a packet that
  // the test sends itself at the end. False: it never came, and nothing can be said.
  bool read_until(const std::string& last) {
    while (!destinations_.contains(last)) {
      pollfd entry{socket_.get(), POLLIN, 0};
      if (poll(&entry, 1, 10'000) <= 0) return false;
      std::array<unsigned char, 128> packet{};
      const ssize_t got = recv(socket_.get(), packet.data(), packet.size(), MSG_TRUNC);
      if (got > 0) destinations_.insert(destination_of(packet));
    }
    return true;
  }
  const std::set<std::string>& destinations() const { return destinations_; }

 private:
  static std::string destination_of(const std::array<unsigned char, 128>& packet) {
    const bool ipv4 = packet[0] >> 4 == 4;
    const std::size_t head = ipv4 ? (packet[0] & 0xfU) * 4U : 40U;
    const unsigned protocol = ipv4 ? packet[9] : packet[6];
    std::array<char, INET6_ADDRSTRLEN> address{};
    inet_ntop(ipv4 ? AF_INET : AF_INET6, packet.data() + (ipv4 ? 16 : 24), address.data(),
              address.size());
    const bool has_ports = protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
    const unsigned port = has_ports ? packet[head + 2] * 256U + packet[head + 3] : 0;
    const std::string name = protocol == IPPROTO_TCP   ? "tcp"
                             : protocol == IPPROTO_UDP ? "udp"
                                                       : "ip " + std::to_string(protocol);
    return name + " " + address.data() + ":" + std::to_string(port);
  }

  sys::UniqueFd socket_;
  std::set<std::string> destinations_;
};

// The packet that shows that a capture sees what there is, to an address at which nobody is.
// Returns what it is called there. For `ASSERT_TRUE(capture.read_until(...))`.
inline std::string send_control_packet() {
  constexpr std::uint16_t kPort = 9999;
  const sys::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(kPort);
  inet_pton(AF_INET, kOtherIpv4, &at.sin_addr);
  const auto* const address = reinterpret_cast<const sockaddr*>(&at);
  if (bind(socket.get(), address, sizeof at) != 0 ||
      sendto(socket.get(), "x", 1, 0, address, sizeof at) != 1) {
    sys::throw_errno("the control packet");
  }
  return std::string("udp ") + kOtherIpv4 + ":" + std::to_string(kPort);
}

}  // namespace casemate
