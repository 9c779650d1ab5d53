#include "bench/host_tools.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>

#include "casemate/base/digest.h"
#include "casemate/host_tools/over_exec.h"
#include "casemate/host_tools/over_exec_guest.h"
#include "casemate/host_tools/session.h"
#include "casemate/sys/socket.h"

namespace casemate::bench {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPingBytes = 64;
constexpr std::size_t kThreads = 8;
// Of one sample; with threads, of each.
constexpr std::size_t kCalls = 100;
// The transport looks for files five times a second.
constexpr std::size_t kFileCalls = 10;
constexpr const char* kPython = "/usr/bin/python3";

// Takes an order, measures, reports; until there is none. Its calls of `next` wait for its turn.
constexpr const char* kCaller = R"py(
import casemate_tools, threading, time
call, clock = casemate_tools.call, time.perf_counter_ns
TEXT = "x" * 32

def one(count):
    samples = []
    for _ in range(count):
        start = clock()
        call("echo", text=TEXT)
        samples.append(clock() - start)
    return samples

def many(threads, count):
    ready = threading.Barrier(threads + 1)
    def work():
        ready.wait()
        for _ in range(count):
            call("echo", text=TEXT)
    all = [threading.Thread(target=work) for _ in range(threads)]
    for each in all: each.start()
    ready.wait()
    start = clock()
    for each in all: each.join()
    return [(clock() - start) / (threads * count)]

samples = None
while True:
    order = call("next", samples=samples)
    if not order:
        break
    samples = one(order["calls"]) if order["threads"] == 1 else many(order["threads"], order["calls"])
)py";

// 64 bytes there and back on the descriptor that it is told, as often as a line of standard input
// says.
constexpr const char* kBareCaller = R"py(
import _socket, sys, time
connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, int(sys.argv[1]))
clock, ping = time.perf_counter_ns, b"x" * 64
for line in sys.stdin:
    samples = []
    for _ in range(int(line)):
        start = clock()
        connection.sendall(ping)
        connection.recv(64)
        samples.append(clock() - start)
    print(*samples, flush=True)
)py";

[[noreturn]] void fail(const std::string& why) {
  throw std::runtime_error("bench: host tools: " + why);
}

// Where the two ends of an exchange run. Left to itself the kernel may put both on one processor,
// where a wake-up costs a quarter, or on two, and keeps to it: from one run to the next the same
// limit is 9 or 41 microseconds. `two_processors` is what a host and its sandbox have.
enum class Placement { of_the_kernel, two_processors };

// Processors that this process may use: the first and the last.
std::pair<std::size_t, std::size_t> outer_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail("sched_getaffinity");
  std::size_t first = CPU_SETSIZE;
  std::size_t last = 0;
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &allowed)) continue;
    first = std::min(first, i);
    last = i;
  }
  return {first, last};
}

// The calling thread stays on one processor while it lives; without one it is left where it is.
class OnProcessor {
 public:
  explicit OnProcessor(std::optional<std::size_t> processor) : placed_(processor.has_value()) {
    if (!placed_) return;
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) fail("sched_getaffinity");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(*processor, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) fail("sched_setaffinity");
  }
  ~OnProcessor() {
    if (placed_) sched_setaffinity(0, sizeof before_, &before_);
  }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;

 private:
  bool placed_;
  cpu_set_t before_;
};

// A process that sends back what comes.
class Echo {
 public:
  explicit Echo(Placement placement) {
    std::optional<std::size_t> far_processor;
    if (placement == Placement::two_processors) {
      std::tie(near_, far_processor) = outer_processors();
    }
    const OnProcessor far_end(far_processor);
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    process_ = fork();
    if (process_ < 0) fail("fork");
    if (process_ == 0) serve(far.get(), near.get());
    socket_ = std::move(near);
  }
  ~Echo() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  int socket() const { return socket_.get(); }
  // For the end that asks; nothing where the kernel places it.
  OnProcessor near_end() const { return OnProcessor(near_); }

  void ping() const {
    std::array<char, kPingBytes> bytes{};
    if (write(socket_.get(), bytes.data(), bytes.size()) != kPingBytes ||
        recv(socket_.get(), bytes.data(), bytes.size(), MSG_WAITALL) != kPingBytes) {
      fail("the echo has ended");
    }
  }

 private:
  [[noreturn]] static void serve(int socket, int other) {
    close(other);
    std::array<char, kPingBytes> bytes;
    ssize_t got = 0;
    while ((got = recv(socket, bytes.data(), bytes.size(), 0)) > 0) {
      if (write(socket, bytes.data(), static_cast<std::size_t>(got)) != got) break;
    }
    _exit(0);
  }

  std::optional<std::size_t> near_;
  pid_t process_ = -1;
  sys::UniqueFd socket_;
};

// CPython at the other end of an `Echo`.
class BarePython {
 public:
  explicit BarePython(Placement placement) : echo_(placement) {
    const OnProcessor placed = echo_.near_end();
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    const std::string socket = std::to_string(echo_.socket());
    process_ = fork();
    if (process_ < 0) fail("fork");
    if (process_ == 0) {
      if (dup2(far.get(), 0) < 0 || dup2(far.get(), 1) < 0) _exit(1);
      fcntl(echo_.socket(), F_SETFD, 0);
      execl(kPython, kPython, "-I", "-c", kBareCaller, socket.c_str(), nullptr);
      _exit(1);
    }
    commands_ = std::move(near);
    samples_.reset(fdopen(dup(commands_.get()), "r"));
    if (!samples_) fail("fdopen");
  }
  ~BarePython() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  BarePython(const BarePython&) = delete;
  BarePython& operator=(const BarePython&) = delete;

  void measure(std::size_t calls, std::vector<double>& samples) {
    if (dprintf(commands_.get(), "%zu\n", calls) < 0) fail("the bare caller has ended");
    for (std::size_t i = 0; i < calls; ++i) {
      double nanoseconds = 0;
      if (fscanf(samples_.get(), "%lf", &nanoseconds) != 1) fail("the bare caller has ended");
      samples.push_back(nanoseconds / 1e6);
    }
  }

 private:
  struct Close {
    void operator()(FILE* file) const { fclose(file); }
  };
  Echo echo_;
  pid_t process_ = -1;
  sys::UniqueFd commands_;
  std::unique_ptr<FILE, Close> samples_;
};

HostTool tool_of(const char* name, HostToolFunction function) {
  HostTool tool;
  tool.name = name;
  tool.description = name;
  tool.parameters = R"({"type":"object"})";
  tool.function = std::move(function);
  tool.declaration =
      HostToolDeclaration{.source = std::nullopt, .sink = std::nullopt, .identity = std::nullopt};
  return tool;
}

HostTool echo_tool() {
  return tool_of("echo", [](const json::object& arguments, const HostToolContext&) {
    return json::value(arguments);
  });
}

// The program inside, told one measurement at a time. It asks for the next one by a host tool,
// whose function waits here for the order and takes the samples of the last.
class Caller {
 public:
  explicit Caller(Sandbox& sandbox)
      : session_(registry(), {}),
        call_(sandbox.open_call({.host_tool_socket = session_.socket()}, {})) {
    session_.serve();
    ExecRequest request;
    request.command = Argv{{kPython, "-c", kCaller}};
    request.environment = session_.environment(call_->host_tool_address());
    request.environment["PYTHONPATH"] = "/casemate/python";
    runner_ = std::jthread([this, process = call_->start(request, {})] {
      ExecResult result;
      try {
        result = process->wait({});
      } catch (const std::exception& error) {
        result.stderr = error.what();
      }
      const std::lock_guard lock(mutex_);
      ended_ = result.stderr + " ";
      changed_.notify_all();
    });
    // Its start.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ || ended_; });
  }
  ~Caller() {
    tell(json::value(nullptr));
    runner_.join();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void measure(std::size_t threads, std::size_t calls, std::vector<double>& samples) {
    tell(json::object{{"threads", threads}, {"calls", calls}});
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reported_ || ended_; });
    if (!reported_) fail("the caller has ended: " + ended_.value_or(""));
    const json::array reported = *std::exchange(reported_, std::nullopt);
    for (const json::value& each : reported) {
      samples.push_back(each.to_number<double>() / 1e6);
    }
  }

 private:
  std::shared_ptr<HostToolRegistry> registry() {
    constexpr std::uint64_t kMany = 1'000'000'000;
    auto made = std::make_shared<HostToolRegistry>(HostToolRegistryOptions{
        .max_host_tool_calls_per_run = kMany, .response_limits = {kMiB, kMany, kMany}});
    made->register_tool(echo_tool());
    made->register_tool(tool_of("next", [this](const json::object& arguments, const auto&) {
      std::unique_lock lock(mutex_);
      if (arguments.at("samples").is_array()) reported_ = arguments.at("samples").as_array();
      waiting_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return order_.has_value(); });
      waiting_ = false;
      return *std::exchange(order_, std::nullopt);
    }));
    return made;
  }

  void tell(json::value order) {
    const std::lock_guard lock(mutex_);
    order_ = std::move(order);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<json::value> order_;
  std::optional<json::array> reported_;
  std::optional<std::string> ended_;
  bool waiting_ = false;
  HostToolSession session_;
  std::unique_ptr<Call> call_;
  std::jthread runner_;
};

// One program that calls `count` times over files; its samples.
std::vector<double> measure_over_files(Sandbox& sandbox, std::size_t count) {
  const auto call = sandbox.open_call({}, {});
  std::unique_ptr<Process> started;
  // What an exec leaves behind ends with it here, so the one that starts the program is not waited
  // for.
  const ExecAndFiles guest(*call, [&](const ExecRequest& request, const CallControl& control) {
    const std::vector<std::string>& words = std::get<Argv>(request.command).words;
    if (words.front() != "sh") return call->exec(request, control);
    ExecRequest staying = request;
    staying.timeout.reset();
    staying.command = ShellLine{"sh '" + words.at(1) + "' && exec sleep 600"};
    started = call->start(staying, control);
    ExecResult result;
    result.exit_code = 0;
    result.stdout = std::string(kOverExecSessionLine) + "\n";
    return result;
  });
  auto registry = std::make_shared<HostToolRegistry>(HostToolRegistryOptions{
      .max_host_tool_calls_per_run = count, .response_limits = {kKiB, kMiB, count}});
  registry->register_tool(echo_tool());
  HostToolRun run(registry, {});
  const GuestRunLayout layout = guest_run_layout(call->directory());
  const auto write = [&](const std::string& path, const std::string& text) {
    call->write_file(path, text, layout.run_directory(), {});
  };
  write(layout.module(), over_exec_module({.names = {"echo"}}));
  write(layout.program(),
        "import casemate_tools, time\n"
        "clock = time.perf_counter_ns\n"
        "for _ in range(" +
            std::to_string(count) +
            "):\n"
            "    start = clock()\n"
            "    casemate_tools.call('echo', text='x' * 32)\n"
            "    print(clock() - start)\n");
  const OverExecResult ended =
      host_tool_calls_over_exec(guest, run, layout, {.timeout = std::chrono::minutes(10)}, {});
  if (ended.result.exit_code != 0) fail("over files: " + ended.result.stderr);
  std::vector<double> samples;
  std::istringstream lines(ended.result.stdout);
  for (double nanoseconds = 0; lines >> nanoseconds;) samples.push_back(nanoseconds / 1e6);
  return samples;
}

// Started by the first row that needs it.
template <typename Made>
class Late {
 public:
  template <typename... Arguments>
  Made& get(Arguments&... arguments) {
    if (!made_) made_.emplace(arguments...);
    return *made_;
  }
  void reset() { made_.reset(); }

 private:
  std::optional<Made> made_;
};

class HostToolRows {
 public:
  explicit HostToolRows(std::shared_ptr<SandboxBackend> backend) : backend_(std::move(backend)) {}
  ~HostToolRows() {
    caller_.reset();
    sandbox_.reset();
    backend_->dispose(key_);
  }
  HostToolRows(const HostToolRows&) = delete;
  HostToolRows& operator=(const HostToolRows&) = delete;

  double ping(Placement placement) {
    Late<Echo>& made = placement == Placement::two_processors ? echo_ : echo_of_the_kernel_;
    const Echo& echo = made.get(placement);
    const OnProcessor placed = echo.near_end();
    std::vector<double> samples;
    for (std::size_t i = 0; i < kCalls; ++i) {
      const auto start = Clock::now();
      echo.ping();
      samples.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    return quantile(samples, 0.5);
  }
  double bare_python(Placement placement) {
    Late<BarePython>& made = placement == Placement::two_processors ? bare_ : bare_of_the_kernel_;
    std::vector<double> samples;
    made.get(placement).measure(kCalls, samples);
    return quantile(samples, 0.5);
  }
  double call(std::size_t threads) {
    std::vector<double> samples;
    caller_.get(sandbox()).measure(threads, kCalls, samples);
    return quantile(samples, 0.5);
  }
  std::vector<double> over_files() { return measure_over_files(sandbox(), kFileCalls); }

 private:
  Sandbox& sandbox() {
    if (!sandbox_) {
      SandboxSpec spec;
      spec.kind = "bench";
      // So that the quota of one processor throttles nobody: eight threads can use more.
      spec.resources.cpu_millis = stated(2000);
      sandbox_ = backend_->acquire(key_, spec, {});
    }
    return *sandbox_;
  }

  const std::shared_ptr<SandboxBackend> backend_;
  const SandboxKey key_{"bench " + random_hex(8), "host tools", "default"};
  std::shared_ptr<Sandbox> sandbox_;
  Late<Echo> echo_;
  Late<Echo> echo_of_the_kernel_;
  Late<BarePython> bare_;
  Late<BarePython> bare_of_the_kernel_;
  Late<Caller> caller_;
};

}  // namespace

std::vector<Subject> host_tool_subjects(std::shared_ptr<SandboxBackend> backend) {
  const auto rows = std::make_shared<HostToolRows>(std::move(backend));
  return {
      {.work = "host_tool_call",
       .name = "limit",
       .once = [rows] { return rows->ping(Placement::two_processors); }},
      {.work = "host_tool_call",
       .name = "limit, as the kernel places it",
       .once = [rows] { return rows->ping(Placement::of_the_kernel); }},
      {.work = "host_tool_call",
       .name = "casemate",
       .once = [rows] { return rows->call(1); },
       .bars = {{.factor = 1.5}}},
      {.work = "host_tool_call",
       .name = "casemate, over files",
       .all = [rows] { return rows->over_files(); }},
      {.work = "host_tool_8_threads",
       .name = "limit",
       .argv = {kPython, "-I", "-c", kBareCaller},
       .once = [rows] { return rows->bare_python(Placement::two_processors); }},
      {.work = "host_tool_8_threads",
       .name = "limit, as the kernel places it",
       .argv = {kPython, "-I", "-c", kBareCaller},
       .once = [rows] { return rows->bare_python(Placement::of_the_kernel); }},
      {.work = "host_tool_8_threads",
       .name = "casemate",
       .once = [rows] { return rows->call(kThreads); },
       .bars = {{.factor = 0.6}}},
  };
}

}  // namespace casemate::bench
