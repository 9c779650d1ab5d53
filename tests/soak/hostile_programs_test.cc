// That nothing survives of programs that mean it.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "tests/soak/rounds.h"
#include "tests/soak/soak.h"

namespace casemate::soak {
namespace {

using namespace std::chrono_literals;
using linux_tests::shell;

// Bounded, and harmless where they succeed.
const std::vector<std::string>& hostile_programs() {
  static const std::vector<std::string> programs = {
      // Out of the process group, the session, the parent.
      "import os,time\n"
      "for _ in range(20):\n"
      "  if os.fork() == 0:\n"
      "    os.setsid()\n"
      "    if os.fork(): os._exit(0)\n"
      "    time.sleep(1000)\n",
      // Forks for as long as it may.
      "import os,time\n"
      "end = time.monotonic() + 0.2\n"
      "while time.monotonic() < end:\n"
      "  try: os.fork()\n"
      "  except OSError: pass\n",
      // Deaf to every signal that can be ignored.
      "import signal,time\n"
      "for n in range(1, 65):\n"
      "  try: signal.signal(n, signal.SIG_IGN)\n"
      "  except (OSError, ValueError): pass\n"
      "time.sleep(1000)\n",
      // Fills what it may write to.
      "f = open('fill', 'wb', buffering=0)\n"
      "try:\n"
      "  while True: f.write(b'x' * (1 << 20))\n"
      "except OSError: pass\n",
      // A tree that is hard to remove.
      "import os\n"
      "for _ in range(300):\n"
      "  os.mkdir('d' * 200); os.chmod('d' * 200, 0o700); os.chdir('d' * 200)\n"
      "open('f', 'w').close(); os.chmod('.', 0)\n",
      // Many names in one directory, links and pipes among them.
      "import os\n"
      "for i in range(2000): os.symlink('/', 'l%d' % i)\n"
      "for i in range(100): os.mkfifo('p%d' % i)\n",
      // Stops itself, and its children.
      "import os,signal\n"
      "for _ in range(5):\n"
      "  if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
      "os.kill(os.getpid(), signal.SIGSTOP)\n",
      // Everybody it can name.
      "import os,signal\n"
      "for n in range(1, 200):\n"
      "  try: os.kill(n, signal.SIGKILL)\n"
      "  except OSError: pass\n"
      "os.kill(-1, signal.SIGKILL)\n",
      // Sockets, shared memory, message queues that outlive a process elsewhere.
      "import os,socket,time\n"
      "s = [socket.socket() for _ in range(50)]\n"
      "u = socket.socket(socket.AF_UNIX); u.bind('\\0kept'); u.listen()\n"
      "open('/dev/shm/kept', 'w').write('x'); open('/tmp/kept', 'w').write('x')\n"
      "if os.fork() == 0: time.sleep(1000)\n",
      // Prints for ever, from a child that it leaves.
      "import os\n"
      "if os.fork() == 0:\n"
      "  while True: os.write(1, b'x' * 65536)\n",
  };
  return programs;
}

// Only where it is bounded.
constexpr char kTakesMemory[] =
    "b = []\n"
    "while True: b.append(bytearray(1 << 24))\n";

TEST_F(Soak, HostilePrograms) {
  remember_what_is_there();
  const std::set<Limit> held = backend().declarations().enforceable_limits;
  SandboxSpec tight = spec();
  tight.resources.disk_bytes = stated(16 << 20);
  tight.resources.pids = stated(32);
  std::vector<std::string> programs = hostile_programs();
  if (held.contains(Limit::memory)) {
    tight.resources.memory_bytes = stated(64 << 20);
    programs.emplace_back(kTakesMemory);
  }
  auto host = another_backend();
  for (int i = 0; i < rounds(1000); ++i) {
    const std::string& program = programs[static_cast<std::size_t>(i) % programs.size()];
    // Some in a sandbox that others used, some in one of their own.
    const SandboxKey which = key(i % 3 == 0 ? "own " + std::to_string(i) : "shared");
    ExecRequest request = linux_tests::python(program);
    request.timeout = 300ms;
    const ExecResult result = host->acquire(which, tight, {})->exec(request, {});
    EXPECT_TRUE(result.stopped_known) << i << ": " << program;
    if (i % 3 == 0) {
      EXPECT_EQ(host->dispose(which), 1) << i;
    }
  }
  EXPECT_EQ(host->acquire(key("shared"), tight, {})->exec(shell("echo alive"), {}).stdout,
            "alive\n");
  EXPECT_EQ(host->dispose(key("shared")), 1);
  EXPECT_TRUE(host->list().empty());
  host.reset();
  expect_nothing_left("after the last program");
}

}  // namespace
}  // namespace casemate::soak
