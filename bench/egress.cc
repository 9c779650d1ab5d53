#include "bench/egress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "bench/process.h"
#include "casemate/base/digest.h"
#include "casemate/core/host_pattern.h"
#include "casemate/egress/gateway.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/tcp.h"

namespace casemate::bench {
namespace {

constexpr std::size_t kBytes = 256 * 1024 * 1024;
constexpr const char* kPython = "/usr/bin/python3";
constexpr std::chrono::seconds kPatience{10};
// Faster than its default of 8 KiB.
constexpr const char* kSocatBuffer = "-b65536";

// Connects to "HOST:PORT", or to "@NAME" among the abstract sockets, says the bytes of its second
// word (in hexadecimal) and reads to the end. Prints the milliseconds, and the bytes that came.
constexpr const char* kClient = R"py(
import socket, sys, time
buffer = bytearray(1 << 18)
start = time.perf_counter_ns()
if sys.argv[1][0] == "@":
    stream = socket.socket(socket.AF_UNIX)
    stream.connect("\0" + sys.argv[1][1:])
else:
    host, port = sys.argv[1].split(":")
    stream = socket.create_connection((host, int(port)))
stream.sendall(bytes.fromhex(sys.argv[2]))
total = 0
while got := stream.recv_into(buffer):
    total += got
print((time.perf_counter_ns() - start) / 1e6, total, end="")
)py";

[[noreturn]] void fail(const std::string& why) {
  throw std::runtime_error("bench: egress: " + why);
}

// Sends `kBytes` to whoever connects, one after the other.
class Server {
 public:
  Server() : thread_([this] { serve(); }) {}
  ~Server() {
    sys::raise_event(stopped_.get());
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const { return listener_.port; }
  std::string address() const { return fmt::format("127.0.0.1:{}", port()); }

 private:
  void serve() const {
    const std::string piece(256 * 1024, 'x');
    while (true) {
      std::array<pollfd, 2> entries{pollfd{stopped_.get(), POLLIN, 0},
                                    pollfd{listener_.socket.get(), POLLIN, 0}};
      sys::poll_until(entries, std::nullopt);
      if (entries[0].revents != 0) return;
      const sys::UniqueFd client(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) continue;
      for (std::size_t left = kBytes; left > 0;) {
        const ssize_t sent =
            send(client.get(), piece.data(), std::min(left, piece.size()), MSG_NOSIGNAL);
        if (sent <= 0) break;
        left -= static_cast<std::size_t>(sent);
      }
    }
  }

  sys::LoopbackListener listener_ = sys::listen_on_loopback();
  sys::UniqueFd stopped_ = sys::make_event();
  std::thread thread_;
};

double milliseconds_of(const std::string& printed, std::size_t expected = kBytes) {
  double milliseconds = 0;
  std::size_t bytes = 0;
  if (std::sscanf(printed.c_str(), "%lf %zu", &milliseconds, &bytes) != 2 || bytes != expected) {
    fail("the client printed '" + printed + "'");
  }
  return milliseconds;
}

std::vector<std::string> client_argv(const std::string& address, const std::string& request) {
  return {kPython, "-I", "-c", kClient, address, request};
}

// A process of this host, ended with the object.
class Child {
 public:
  // `output` becomes its standard output, unless it is -1.
  Child(const std::vector<std::string>& argv, int output) {
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    process_ = fork();
    if (process_ < 0) fail("fork");
    if (process_ == 0) {
      if (output >= 0) dup2(output, STDOUT_FILENO);
      // socat says there that somebody went away.
      const int nowhere = ::open("/dev/null", O_WRONLY);
      if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
      execvp(words[0], words.data());
      _exit(127);
    }
  }
  ~Child() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t process_ = -1;
};

double run_client(const std::string& address, const std::string& request = "",
                  std::size_t expected = kBytes) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe2");
  const sys::UniqueFd out(ends[0]);
  sys::UniqueFd in(ends[1]);
  const Child client(client_argv(address, request), in.get());
  in.reset();
  std::string printed;
  std::array<char, 256> buffer;
  ssize_t got = 0;
  while ((got = read(out.get(), buffer.data(), buffer.size())) > 0) {
    printed.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return milliseconds_of(printed, expected);
}

std::string in_hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// TCP to a Unix socket and back to TCP.
class SocatChain {
 public:
  explicit SocatChain(const Server& server) : port_(free_port()) {
    char name[] = "/tmp/casemate-bench-XXXXXX";
    if (mkdtemp(name) == nullptr) fail("no directory under /tmp");
    directory_ = name;
    const std::string middle = directory_ + "/middle";
    second_.emplace(
        std::vector<std::string>{"socat", kSocatBuffer, "UNIX-LISTEN:" + middle + ",fork",
                                 "TCP:" + server.address()},
        -1);
    await([&] { return std::filesystem::exists(middle); });
    first_.emplace(first(port_, middle), -1);
    await([&] { return connects(); });
  }
  ~SocatChain() {
    first_.reset();
    second_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  SocatChain(const SocatChain&) = delete;
  SocatChain& operator=(const SocatChain&) = delete;

  static std::vector<std::string> first(std::uint16_t port, const std::string& middle) {
    return {"socat", kSocatBuffer, fmt::format("TCP-LISTEN:{},bind=127.0.0.1,reuseaddr,fork", port),
            "UNIX-CONNECT:" + middle};
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  static std::uint16_t free_port() { return sys::listen_on_loopback().port; }

  // Says neither when it listens nor, by its path, more than that it has bound.
  template <typename Condition>
  static void await(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) fail("socat does not listen");
      std::this_thread::yield();
    }
  }

  bool connects() const {
    const sys::UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }

  std::string directory_;
  std::uint16_t port_;
  std::optional<Child> second_;
  std::optional<Child> first_;
};

HostPattern entry_of(const Server& server) { return HostPattern::parse(server.address()); }

// The host's side without a sandbox: the client says a door's request itself.
class HostSide {
 public:
  explicit HostSide(const Server& server)
      : gateway_(EgressOptions{.allow = {entry_of(server)}}),
        name_(sys::bind_to_fresh_name(gateway_.socket())),
        request_(in_hexadecimal(
            encode_egress(EgressRequest{.host = "127.0.0.1", .port = server.port()}))) {
    gateway_.serve();
  }

  // The client takes the answer to the door for a part of the rest.
  double once() const {
    const std::size_t answer = encode_egress(EgressAnswer{}).size();
    return run_client("@" + name_.substr(1), request_, kBytes + answer);
  }

 private:
  EgressGateway gateway_;
  std::string name_;
  std::string request_;
};

class InSandbox {
 public:
  InSandbox(std::shared_ptr<SandboxBackend> backend, const Server& server)
      : backend_(std::move(backend)) {
    SandboxSpec spec;
    spec.kind = "bench";
    spec.egress = Egress::allowlist;
    spec.egress_allow = {entry_of(server)};
    // So that the quota of one processor throttles neither the client nor the door.
    spec.resources.cpu_millis = stated(2000);
    sandbox_ = backend_->acquire(key_, spec, {});
  }
  ~InSandbox() {
    sandbox_.reset();
    backend_->dispose(key_);
  }
  InSandbox(const InSandbox&) = delete;
  InSandbox& operator=(const InSandbox&) = delete;

  double once(const Server& server) {
    const auto call = sandbox_->open_call({}, {});
    ExecRequest request;
    request.command = Argv{client_argv(server.address(), "")};
    const ExecResult result = call->exec(request, {});
    return milliseconds_of(result.stdout);
  }

 private:
  const std::shared_ptr<SandboxBackend> backend_;
  const SandboxKey key_{"bench " + random_hex(8), "egress", "default"};
  std::shared_ptr<Sandbox> sandbox_;
};

class EgressRows {
 public:
  explicit EgressRows(std::shared_ptr<SandboxBackend> backend) : backend_(std::move(backend)) {}

  double direct() { return run_client(server().address()); }
  double by_socat() {
    if (!chain_) chain_.emplace(server());
    return run_client(chain_->address());
  }
  double host_side() {
    if (!host_side_) host_side_.emplace(server());
    return host_side_->once();
  }
  double in_sandbox() {
    if (!in_sandbox_) in_sandbox_.emplace(backend_, server());
    return in_sandbox_->once(server());
  }

 private:
  Server& server() {
    if (!server_) server_.emplace();
    return *server_;
  }

  const std::shared_ptr<SandboxBackend> backend_;
  std::optional<Server> server_;
  std::optional<SocatChain> chain_;
  std::optional<HostSide> host_side_;
  std::optional<InSandbox> in_sandbox_;
};

}  // namespace

std::vector<Subject> egress_subjects(std::shared_ptr<SandboxBackend> backend) {
  constexpr const char* kWork = "egress_throughput";
  const auto rows = std::make_shared<EgressRows>(std::move(backend));
  const std::string no_socat = find_program("socat").empty() ? "socat is not installed" : "";
  return {
      {.work = kWork, .name = "limit", .once = [rows] { return rows->direct(); }},
      {.work = kWork,
       .name = "casemate",
       .once = [rows] { return rows->in_sandbox(); },
       .bars = {{.of = "socat", .factor = 1}}},
      {.work = kWork,
       .name = "casemate, host side",
       .once = [rows] { return rows->host_side(); },
       .bars = {{.of = "socat", .factor = 1}}},
      {.work = kWork,
       .name = "socat",
       .argv = SocatChain::first(8080, "SOCKET"),
       .once = [rows] { return rows->by_socat(); },
       .skipped = no_socat},
  };
}

}  // namespace casemate::bench
