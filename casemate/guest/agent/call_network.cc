#include "casemate/guest/agent/call_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// A network namespace makes its loopback interface first.
constexpr std::uint32_t kLoopbackIndex = 1;

struct Address {
  std::uint8_t family = AF_INET;
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  std::size_t size = sizeof(in_addr);
  std::uint8_t prefix = 32;
};

Address parse(const std::string& text) {
  Address address;
  if (inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1) return address;
  address.family = AF_INET6;
  address.size = sizeof(in6_addr);
  address.prefix = 128;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) != 1) {
    sys::throw_error(EINVAL, "the address " + text);
  }
  return address;
}

// What is loopback's already, or nobody's.
bool is_there(const Address& address) {
  if (address.family == AF_INET) {
    return address.bytes[0] == 127 || address.bytes[0] == 0;
  }
  in6_addr value{};
  std::memcpy(&value, address.bytes.data(), sizeof value);
  return IN6_IS_ADDR_LOOPBACK(&value) || IN6_IS_ADDR_UNSPECIFIED(&value);
}

// Says one thing to the kernel's routing part. Returns 0 or the errno of its answer.
int add_address(int netlink, const Address& address) {
  struct {
    nlmsghdr head{};
    ifaddrmsg body{};
    rtattr attribute{};
    std::array<unsigned char, sizeof(in6_addr)> bytes{};
  } request;
  static_assert(sizeof request == sizeof(nlmsghdr) + sizeof(ifaddrmsg) + sizeof(rtattr) + 16);
  const auto attribute_size = static_cast<std::uint16_t>(sizeof(rtattr) + address.size);
  request.head.nlmsg_len =
      static_cast<std::uint32_t>(sizeof(nlmsghdr) + sizeof(ifaddrmsg)) + attribute_size;
  request.head.nlmsg_type = RTM_NEWADDR;
  request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
  request.body.ifa_family = address.family;
  request.body.ifa_prefixlen = address.prefix;
  request.body.ifa_flags = address.family == AF_INET6 ? IFA_F_NODAD : 0;
  request.body.ifa_scope = RT_SCOPE_HOST;
  request.body.ifa_index = kLoopbackIndex;
  request.attribute.rta_len = attribute_size;
  request.attribute.rta_type = IFA_LOCAL;
  request.bytes = address.bytes;
  if (send(netlink, &request, request.head.nlmsg_len, 0) < 0) return errno;
  struct {
    nlmsghdr head{};
    nlmsgerr error{};
    std::array<char, 1024> rest{};
  } answer;
  const ssize_t got = recv(netlink, &answer, sizeof answer, 0);
  if (got < 0) return errno;
  if (static_cast<std::size_t>(got) < sizeof(nlmsghdr) + sizeof(nlmsgerr) ||
      answer.head.nlmsg_type != NLMSG_ERROR) {
    return EPROTO;
  }
  return -answer.error.error;
}

}  // namespace

void raise_loopback() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) sys::throw_errno("opening a socket for the loopback interface");
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP;
  if (ioctl(socket.get(), SIOCSIFFLAGS, &request) < 0) {
    sys::throw_errno("raising the loopback interface");
  }
}

void enter_network(const std::vector<std::string>& addresses) {
  if (unshare(CLONE_NEWNET) < 0) sys::throw_errno("making a network namespace");
  raise_loopback();
  const UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!netlink) sys::throw_errno("opening a socket for addresses");
  // An address, and not only a route: a C library that looks for an interface with IPv4 before it
  // asks for such addresses finds this one (AI_ADDRCONFIG).
  Address synthetic = parse("198.18.0.1");
  synthetic.prefix = 15;
  if (const int error = add_address(netlink.get(), synthetic)) {
    sys::throw_error(error, "giving loopback the addresses of names");
  }
  for (const std::string& text : addresses) {
    const Address address = parse(text);
    if (is_there(address)) continue;
    const int error = add_address(netlink.get(), address);
    const bool without = address.family == AF_INET6 && (error == EOPNOTSUPP || error == EACCES);
    if (error != 0 && !without) sys::throw_error(error, "giving loopback the address " + text);
  }
  const UniqueFd proc = sys::open_at(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY);
  sys::write_control_file_at(proc.get(), "sys/net/ipv4/ip_unprivileged_port_start", "0");
}

}  // namespace casemate::guest
