// Networks. Nothing is sent beyond loopback: whether an address has a route is asked of the kernel
// by connecting a datagram socket, which sends nothing.

#include <fmt/format.h>

#include <array>
#include <string>

#include "casemate/conformance/guest_program.h"
#include "casemate/conformance/host_marks.h"
#include "casemate/conformance/probe.h"

namespace casemate::conformance {
namespace {

void only_loopback_is_there(Trial& trial) {
  expect_done(trial, "looking for interfaces", R"py(
import socket
names = {line.split(":")[0].strip() for line in open("/proc/net/dev").read().splitlines()[2:]}
names |= {name for _, name in socket.if_nameindex()}
try:
    names |= {line.split()[-1] for line in open("/proc/net/if_inet6")}
except OSError:
    pass
for name in sorted(names - {"lo"}): print("interface", name)
)py");
}

void no_route_leads_out(Trial& trial) {
  // Metadata services of clouds, addresses for documentation (RFC 5737, RFC 3849), a broadcast, and
  // whoever is named as a resolver.
  expect_done(trial, "asking for ways to metadata services, resolvers and anywhere else", R"py(
import ipaddress, socket
addresses = ["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.2.1",
             "10.0.0.1", "172.17.0.1", "255.255.255.255", "224.0.0.251",
             "fd00:ec2::254", "2001:db8::1", "::ffff:192.0.2.1"]
try:
    for line in open("/etc/resolv.conf"):
        words = line.split()
        if words[:1] == ["nameserver"] and not ipaddress.ip_address(words[1].split("%")[0]).is_loopback:
            addresses.append(words[1])
except (OSError, ValueError):
    pass
for address in addresses:
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            asking.connect((address, 53))
            print("there is a way to", address)
    except OSError:
        pass
)py");
}

void services_of_the_host_are_out_of_reach(Trial& trial) {
  const AbstractListener abstract;
  const LoopbackService service;
  expect_done(trial, "reaching what listens on the host's loopback and at its abstract names", R"py(
import os, socket
port = int(os.environ["PROBE_PORT"])
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1"),
                        (socket.AF_INET6, "::1"), (socket.AF_INET, "0.0.0.0")):
    try:
        with socket.socket(family) as stream:
            stream.settimeout(5)
            stream.connect((address, port))
            print("reached", address)
    except OSError:
        pass
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as datagram: datagram.sendto(b"x", (address, port))
    except OSError:
        pass
try:
    with socket.socket(socket.AF_UNIX) as unix: unix.connect("\0" + os.environ["PROBE_NAME"])
    print("reached an abstract socket of the host's")
except OSError:
    pass
)py",
              {{"PROBE_PORT", fmt::format("{}", service.port())}, {"PROBE_NAME", abstract.name()}});
  if (service.has_datagram()) {
    throw Unmet("sending a datagram to the host's loopback", "nothing comes", "it came");
  }
}

void sockets_of_the_host_are_out_of_reach(Trial& trial) {
  const PathListener listener;
  expect_done(trial, "connecting to a socket of the host's by its path", R"py(
import os, socket
try:
    with socket.socket(socket.AF_UNIX) as unix: unix.connect(os.environ["PROBE_PATH"])
    print("reached it")
except OSError:
    pass
)py",
              {{"PROBE_PATH", listener.path()}});
}

void networks_cannot_be_changed(Trial& trial) {
  // The request to change loopback changes no flag of it.
  expect_done(trial, "raw and packet sockets, and changing an interface", R"py(
import socket, struct
for family, protocol in ((socket.AF_INET, socket.IPPROTO_ICMP), (socket.AF_INET, socket.IPPROTO_RAW),
                         (socket.AF_INET6, socket.IPPROTO_ICMPV6), (socket.AF_PACKET, 3)):
    try:
        socket.socket(family, socket.SOCK_RAW, protocol).close()
        print("raw socket", family, protocol)
    except OSError:
        pass
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 3).close()
    print("packet socket")
except OSError:
    pass
try:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
        route.settimeout(5)
        SET_LINK, REQUEST, ACK, LOOPBACK = 19, 1, 4, 1
        message = struct.pack("=BxHiII", 0, 0, LOOPBACK, 0, 0)
        route.send(struct.pack("=IHHII", 16 + len(message), SET_LINK, REQUEST | ACK, 1, 0) + message)
        answer = route.recv(4096)
        if struct.unpack_from("=i", answer, 16)[0] == 0: print("may change interfaces")
except OSError:
    pass
)py");
}

std::string closed_only(const BackendDeclarations& declared) {
  if (declared.egress_modes.contains(Egress::closed)) return {};
  return "closed is not declared";
}

}  // namespace

std::span<const Probe> isolation_network_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {.id = "only-loopback-is-there",
       .sentence = "there is no interface but loopback",
       .run = only_loopback_is_there,
       .undeclared = closed_only,
       .from = Isolation::container},
      {.id = "no-route-leads-out",
       .sentence = "neither a metadata service nor a resolver nor any other address has a route",
       .run = no_route_leads_out,
       .undeclared = closed_only,
       .from = Isolation::container},
      {.id = "services-of-the-host-are-out-of-reach",
       .sentence = "loopback and abstract names are not the host's",
       .run = services_of_the_host_are_out_of_reach,
       .from = Isolation::container},
      {.id = "sockets-of-the-host-are-out-of-reach",
       .sentence = "no path leads to a socket of the host's",
       .run = sockets_of_the_host_are_out_of_reach,
       .from = Isolation::os_process},
      {.id = "networks-cannot-be-changed",
       .sentence = "there are no raw and no packet sockets, and no interface can be changed",
       .run = networks_cannot_be_changed,
       .from = Isolation::container},
  });
  return kProbes;
}

}  // namespace casemate::conformance
