// What a program reaches is what was allowed, and nothing else.

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <initializer_list>
#include <string>
#include <vector>

#include "casemate/conformance/ear.h"
#include "casemate/conformance/probe.h"
#include "casemate/conformance/trial.h"
#include "casemate/conformance/web_server.h"
#include "casemate/core/guest_path.h"

namespace casemate::conformance {
namespace {

// The contract's client: curl with this bound, or what does the same where there is no curl. Prints
// the status (000 without an answer) and the client's own exit code, which is curl's.
std::string client(const std::string& url) {
  constexpr std::string_view kPython = R"py(
import sys, urllib.error, urllib.request
status = "000"
try:
    status = urllib.request.urlopen(sys.argv[1], timeout=25).status
except urllib.error.HTTPError as error:
    status = error.code
except OSError:
    pass
sys.stdout.write("%s %s" % (status, 7 if status == "000" else 0))
)py";
  return fmt::format(
      "if command -v curl >/dev/null 2>&1; then "
      "status=$(curl --silent --output /dev/null --max-time 25 --write-out '%{{http_code}}' {0}); "
      "printf '%s %s' \"$status\" \"$?\"; "
      "elif command -v python3 >/dev/null 2>&1; then python3 -c {1} {0}; fi",
      shell_quote(url), shell_quote(kPython));
}

// The status that a program in there gets; 0 when it gets no answer at all.
int fetch(Trial& trial, Call& call, const std::string& url) {
  ExecRequest request;
  request.command = ShellLine{client(url)};
  const ExecResult result = call.exec(request, trial.control());
  const std::string& text = result.stdout;
  int status = -1;
  int exit_code = -1;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, status);
  if (error == std::errc() && behind != end) std::from_chars(behind + 1, end, exit_code);
  // 1 to 4 are curl's own troubles, 126 and 127 the shell's: nothing was tried then.
  const bool tried =
      status >= 0 && exit_code >= 0 && (exit_code == 0 || exit_code > 4) && exit_code < 126;
  if (!tried) {
    throw Unmet("a web client in the sandbox", "curl or python3 that can be run", shown(result));
  }
  return status;
}

bool reached(int status) { return status >= 200 && status < 300; }

std::string shown_status(int status) {
  return status == 0 ? "no answer" : fmt::format("status {}", status);
}

// Where to go: what the subject names, or two servers of our own on the host's loopback.
struct Targets {
  explicit Targets(Trial& trial) {
    if (const auto given = trial.egress_targets()) {
      named = *given;
      return;
    }
    named.allowed_url = allowed.url();
    named.denied_url = denied.url();
    named.allow = {HostPattern::parse(fmt::format("127.0.0.1:{}", allowed.port()))};
  }

  SandboxSpec spec(Trial& trial, Egress mode) const {
    SandboxSpec spec = trial.spec();
    spec.kind += fmt::format("-egress-{}", to_string(mode));
    spec.egress = mode;
    spec.egress_allow.clear();
    if (mode == Egress::allowlist) spec.egress_allow = named.allow;
    return spec;
  }

  WebServer allowed;
  WebServer denied;
  EgressTargets named;
};

void an_allowed_host_is_reachable(Trial& trial) {
  const Targets targets(trial);
  trial.in_sandbox(targets.spec(trial, Egress::allowlist), [&](Call& call) {
    const int status = fetch(trial, call, targets.named.allowed_url);
    if (!reached(status)) {
      throw Unmet("asking " + targets.named.allowed_url + ", which is on the list",
                  "a status of 200 to 299", shown_status(status));
    }
  });
}

void expect_refused_under(Trial& trial, const Targets& targets, Egress mode, const std::string& url,
                          const WebServer& server) {
  trial.in_sandbox(targets.spec(trial, mode), [&](Call& call) {
    const int before = server.connections();
    const int status = fetch(trial, call, url);
    const std::string step = fmt::format("asking {} under {}", url, to_string(mode));
    if (reached(status)) throw Unmet(step, "no answer of the host's", shown_status(status));
    if (server.connections() != before) {
      throw Unmet(step, "no connection to the host", "a connection without an answer");
    }
  });
}

void a_denied_host_is_refused(Trial& trial) {
  const Targets targets(trial);
  if (trial.enforces(Egress::closed)) {
    expect_refused_under(trial, targets, Egress::closed, targets.named.allowed_url,
                         targets.allowed);
    expect_refused_under(trial, targets, Egress::closed, targets.named.denied_url, targets.denied);
  }
  if (trial.enforces(Egress::allowlist)) {
    expect_refused_under(trial, targets, Egress::allowlist, targets.named.denied_url,
                         targets.denied);
  }
}

// What says something to each place ("udp 127.0.0.1 4711"), as far as it gets, and then "done".
std::string caller(const std::vector<Ear>& ears) {
  constexpr std::string_view kPython = R"py(
import socket, sys
for place in sys.argv[1:]:
    kind, address, port = place.split()
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET,
                           socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as ear:
            ear.settimeout(2)
            ear.connect((address, int(port)))
            ear.send(b"from inside")
    except OSError:
        pass
print("done", end="")
)py";
  std::string in_python = "python3 -c " + shell_quote(kPython);
  std::string in_bash = "bash -c ";
  std::string lines;
  for (const Ear& ear : ears) {
    in_python += " " + shell_quote(ear.place());
    std::string path = ear.place();
    for (char& character : path) character = character == ' ' ? '/' : character;
    lines += fmt::format("(echo from inside > /dev/{}) 2>/dev/null; ", path);
  }
  in_bash += shell_quote(lines + "printf done");
  return fmt::format(
      "if command -v python3 >/dev/null 2>&1; then {}; "
      "elif command -v bash >/dev/null 2>&1; then {}; fi",
      in_python, in_bash);
}

void expect_unheard(Trial& trial, Egress mode, std::initializer_list<Ear::Way> ways) {
  std::vector<Ear> ears;
  for (const Ear::Way way : ways) {
    if (auto ear = Ear::listen(way)) ears.push_back(std::move(*ear));
  }
  if (ears.empty()) return;  // there is nothing to be reached
  const Targets targets(trial);
  trial.in_sandbox(targets.spec(trial, mode), [&](Call& call) {
    ExecRequest request;
    request.command = ShellLine{caller(ears)};
    const ExecResult result = call.exec(request, trial.control());
    if (result.stdout != "done") {
      throw Unmet("a program that sends something", "python3 or bash that can be run",
                  shown(result));
    }
  });
  for (Ear& ear : ears) {
    if (ear.heard()) {
      throw Unmet(fmt::format("sending something to {} under {}", ear.place(), to_string(mode)),
                  "nothing that arrives", "it arrived");
    }
  }
}

void expect_unheard_in_every_mode(Trial& trial, std::initializer_list<Ear::Way> ways) {
  for (const Egress mode : {Egress::closed, Egress::allowlist}) {
    if (trial.enforces(mode)) expect_unheard(trial, mode, ways);
  }
}

void no_datagram_arrives(Trial& trial) {
  expect_unheard_in_every_mode(trial, {Ear::Way::udp_ipv4, Ear::Way::udp_ipv6});
}

void ipv6_is_no_way_round(Trial& trial) {
  expect_unheard_in_every_mode(trial, {Ear::Way::tcp_ipv6});
}

std::string no_list(const BackendDeclarations& declared) {
  return declared.egress_modes.contains(Egress::allowlist) ? "" : "allowlist is not declared";
}

std::string nothing_denied(const BackendDeclarations& declared) {
  const bool denies = declared.egress_modes.contains(Egress::allowlist) ||
                      declared.egress_modes.contains(Egress::closed);
  return denies ? "" : "neither closed nor allowlist is declared";
}

}  // namespace

std::span<const Probe> egress_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {"an-allowed-host-is-reachable",
       "a program reaches what is on the list",
       an_allowed_host_is_reachable,
       {},
       no_list},
      {"a-denied-host-is-refused",
       "a program reaches nothing else, in any mode that denies",
       a_denied_host_is_refused,
       {},
       nothing_denied},
      {"no-datagram-arrives",
       "no datagram of a program's reaches the host, in any mode that denies",
       no_datagram_arrives,
       {},
       nothing_denied},
      {"ipv6-is-no-way-round",
       "what is denied is denied by IPv6 too",
       ipv6_is_no_way_round,
       {},
       nothing_denied},
  });
  return kProbes;
}

}  // namespace casemate::conformance
