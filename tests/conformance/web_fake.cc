#include "tests/conformance/web_fake.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <regex>

#include "casemate/backends/in_process/backend.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::conformance_tests {

int ask(unsigned port) {
  const sys::UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 0;
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  if (send(client.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) < 0) return 0;
  char answer[64] = {};
  if (recv(client.get(), answer, sizeof answer - 1, 0) <= 0) return 0;
  int status = 0;
  return std::sscanf(answer, "HTTP/1.1 %d", &status) == 1 ? status : 0;
}

int as_allowed(const SandboxSpec& spec, unsigned port) {
  const bool listed = std::ranges::any_of(
      spec.egress_allow, [&](const HostPattern& entry) { return entry.port() == port; });
  return spec.egress == Egress::allowlist && listed ? ask(port) : 0;
}

bool no_leak(const SandboxSpec&, const std::string&) { return false; }

namespace {

// What a program does that may send to `kind`, `address`, `port`.
void send_to(const std::string& kind, const std::string& address, unsigned port) {
  const bool ipv4 = address == "127.0.0.1";
  const sys::UniqueFd client(socket(ipv4 ? AF_INET : AF_INET6,
                                    (kind == "udp" ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_loopback;
  six.sin6_port = four.sin_port;
  const int connected = ipv4
                            ? connect(client.get(), reinterpret_cast<sockaddr*>(&four), sizeof four)
                            : connect(client.get(), reinterpret_cast<sockaddr*>(&six), sizeof six);
  if (connected == 0) send(client.get(), "x", 1, MSG_NOSIGNAL);
}

bool send_what_leaks(const std::string& command, const SandboxSpec& spec, const Leak& leak) {
  static const std::regex place("'((udp|tcp) ([0-9.:]+) ([0-9]+))'");
  bool any = false;
  for (std::sregex_iterator found(command.begin(), command.end(), place), end; found != end;
       ++found) {
    any = true;
    if (leak(spec, (*found)[1])) {
      send_to((*found)[2], (*found)[3], static_cast<unsigned>(std::stoul((*found)[4])));
    }
  }
  return any;
}

}  // namespace

std::unique_ptr<conformance::Subject> web_fake(Rule rule, Leak leak) {
  // The script needs the backend, which needs the script.
  auto backend = std::make_shared<std::weak_ptr<in_process::InProcessSandboxBackend>>();
  in_process::InProcessSandboxOptions script;
  script.on_exec = [backend, rule, leak](const in_process::Execution& execution) {
    const SandboxSpec spec = backend->lock()->specs().back();
    if (send_what_leaks(execution.command, spec, leak)) return in_process::finished("done");
    static const std::regex url("http://127\\.0\\.0\\.1:([0-9]+)/");
    std::smatch found;
    if (!std::regex_search(execution.command, found, url)) return in_process::finished("", 127);
    const int status = rule(spec, static_cast<unsigned>(std::stoul(found[1])));
    return in_process::finished(status == 0 ? "000 7" : std::to_string(status) + " 0");
  };
  in_process::InProcessBackendOptions options;
  options.declarations.capabilities = {Capability::exec};
  auto made = std::make_shared<in_process::InProcessSandboxBackend>(
      std::make_shared<in_process::InProcessSandbox>(std::move(script)), std::move(options));
  *backend = made;
  return std::make_unique<conformance::Subject>(std::move(made));
}

}  // namespace casemate::conformance_tests
