#include "tests/seam/scenarios.h"

namespace casemate::seam {
namespace {

// What several programs begin with.
constexpr char kAttempt[] = R"(
import errno, os

def attempt(what, act):
    try:
        act()
        print(what, "done")
    except OSError as error:
        print(what, errno.errorcode[error.errno])
)";

constexpr char kEnvironment[] = R"(
import os, stat, sys
for name, value in sorted(os.environ.items()):
    print(f"{name}={value}")
print(sys.argv[1:], os.path.basename(sys.argv[0]), repr(sys.stdin.read()), sys.version_info[:2])
print(os.getcwd(), sorted(os.listdir(".")), sorted(os.listdir(os.environ["HOME"])))
kinds = {}
for number in range(64):
    try:
        kinds[number] = stat.filemode(os.fstat(number).st_mode)[0]
    except OSError:
        pass
print(kinds)
)";

constexpr char kUser[] = R"(
import os, pwd, resource, stat
print("root" if os.getuid() == 0 else "not root", os.getuid() == os.geteuid() == os.getgid() == os.getegid())
print("other groups", len(set(os.getgroups()) - {os.getgid()}))
with open("/proc/self/status") as status:
    for line in status:
        if line.startswith(("Cap", "NoNewPrivs", "Seccomp:")):
            print(line.strip())
print("umask", oct(os.umask(0o022)))
try:
    print(pwd.getpwuid(os.getuid()).pw_name)
except KeyError:
    print("the user has no name")
open("file", "w").close()
print(oct(os.stat("file").st_mode), os.stat("file").st_uid == os.getuid(), oct(os.stat(".").st_mode))
print(os.path.expanduser("~"), os.access(os.path.expanduser("~"), os.W_OK), os.nice(0))
print("core", resource.getrlimit(resource.RLIMIT_CORE), "stack", resource.getrlimit(resource.RLIMIT_STACK)[0])
)";

constexpr char kProc[] = R"(
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)

def write(path):
    with open(path, "w") as file:
        file.write("x")

attempt("write hostname", lambda: write("/proc/sys/kernel/hostname"))
attempt("memory of 1", lambda: open("/proc/1/mem", "rb").read(1))
attempt("environment of 1", lambda: open("/proc/1/environ", "rb").read(1))
attempt("signal to 1", lambda: os.kill(1, 9))
attempt("mount", lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None))
attempt("user namespace", lambda: call("unshare", 0x10000000))
attempt("chroot", lambda: os.chroot("/tmp"))
attempt("clock", lambda: call("clock_settime", 0, ctypes.byref((ctypes.c_long * 2)(1, 0))))
attempt("device", lambda: os.mknod("device", 0o20600, os.makedev(1, 3)))
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt("a way out", lambda: socket.create_connection(("192.0.2.1", 80), 5))
for place in ("/", "/usr", "/etc", "/dev", "/proc", "/sys", "/tmp", "/var/tmp", "/dev/shm", "/workspace"):
    attempt(f"write in {place}", lambda: write(f"{place}/written"))
print([name for _, name in socket.if_nameindex()], socket.gethostname())
seen = set()
for number in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{number}/comm") as name:
            seen.add(name.read().strip())
    except (FileNotFoundError, ProcessLookupError):
        pass
print("processes", sorted(seen))
)";

constexpr char kLocale[] = R"(
import locale, os, sys, time
print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), locale.getpreferredencoding())
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.encoding, stream.errors)
print(locale.setlocale(locale.LC_ALL, ""), sorted("z\u00e4aZ", key=locale.strxfrm))
print(time.tzname, time.localtime(0)[:5], os.environ.get("TZ"))
print("Gr\u00fc\u00dfe \u2603 \U0001d11e".upper())
)";

constexpr char kMemory[] = R"(
print("begun")
kept = []
while True:
    kept.append(b"x" * (4 << 20))
)";

constexpr char kPids[] = R"(
import errno, os
ended, alive = os.pipe()
children = []
try:
    while True:
        child = os.fork()
        if child == 0:
            os.close(alive)
            os.read(ended, 1)
            os._exit(0)
        children.append(child)
except OSError as error:
    print("refused", errno.errorcode[error.errno])
print("at least half the limit", len(children) >= 20, "below it", len(children) < 40)
os.close(alive)
for child in children:
    os.waitpid(child, 0)
child = os.fork()
if child == 0:
    os._exit(7)
print("afterwards", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
)";

constexpr char kDisk[] = R"(
import errno, os

def fill():
    written = 0
    try:
        with open("big", "wb", buffering=0) as file:
            while True:
                written += file.write(b"x" * 65536)
    except OSError as error:
        print("refused", errno.errorcode[error.errno])
    print("at least half the limit", written >= 8 << 20, "at most it", written <= 16 << 20)

fill()
os.remove("big")
with open("small", "w") as file:
    print("afterwards", file.write("x"))
fill()
)";

// Without a word of its own about it.
constexpr char kDiskExceeded[] = R"(
import sys
sys.excepthook = lambda kind, error, trace: None
with open("big", "wb", buffering=0) as file:
    while True:
        file.write(b"x" * 65536)
)";

constexpr char kOpenFiles[] = R"(
import errno, os, resource
print(resource.getrlimit(resource.RLIMIT_NOFILE))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print("refused", errno.errorcode[error.errno], len(held))
)";

constexpr char kForever[] = R"(
print("begun")
while True:
    pass
)";

constexpr char kSignals[] = R"(
import os, signal
print("blocked", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
print("ignored", [number.name for number in sorted(signal.valid_signals()) if signal.getsignal(number) == signal.SIG_IGN])
print("own session", os.getsid(0) == os.getpid(), "own group", os.getpgrp() == os.getpid())
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGXCPU):
    child = os.fork()
    if child == 0:
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(0)
    print(number.name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.kill(os.getpid(), signal.SIGTERM)
)";

constexpr char kNames[] = R"(
import sys
os.mkdir("d")
for name in (b"\xff\xfe", b"new\nline", "\u00fc".encode(), b"a b", b"-rf", b"\x1b[31m", b"x" * 255):
    open(os.path.join(b"d", name), "wb").close()
print(sorted(os.listdir(b"d")))
attempt("a name of 256 bytes", lambda: open("d/" + "x" * 256, "w"))
attempt("a path of 4096 bytes", lambda: open("/" + "d" * 4096, "w"))
sys.stdout.flush()
sys.stdout.buffer.write(b"raw \xff\x00\x1b bytes\n")
sys.stderr.buffer.write(b"\xc3")
sys.exit(3)
)";

constexpr char kStreams[] = R"(
import os, sys
print("an error of its own", file=sys.stderr)
os.dup2(1, 2)
for number in range(3):
    os.write(1, b"out %d\n" % number)
    os.write(2, b"err %d\n" % number)
os.write(1, b"".join(b"line %06d \xe2\x98\x83\n" % number for number in range(10_000)))
sys.exit("last words")
)";

constexpr char kFiles[] = R"(
import hashlib, os
for name in sorted(os.listdir(".")):
    with open(name, "rb") as file:
        print(name, oct(os.stat(name).st_mode), hashlib.sha256(file.read()).hexdigest()[:16])
with open("report.txt", "w") as file:
    file.write("Gr\u00fc\u00dfe\n")
with open("bytes.out", "wb") as file:
    file.write(bytes(range(256)))
os.chmod("bytes.out", 0o400)
with open("empty", "w"):
    pass
with open("not asked for", "w") as file:
    file.write("stays")
)";

constexpr char kLargeFiles[] = R"(
import hashlib
with open("large.bin", "rb") as file:
    content = file.read()
print(len(content), hashlib.sha256(content).hexdigest()[:16])
with open("larger.bin", "wb") as file:
    file.write(content)
    file.write(content[::-1])
)";

constexpr char kRefusedOutput[] = R"(
import os
os.symlink("/etc/passwd", "link")
os.mkfifo("pipe")
with open("file", "w") as file:
    file.write("is not landed alone")
print("all there")
)";

constexpr char kValues[] = R"(
import casemate_tools
print(casemate_tools.call("echo", values=[1, -2.5, None, True, "Gr\u00fc\u00dfe \u2603", {"k": []}], large=2 ** 53))
print(casemate_tools.add(a=2, b=40))
print(len(casemate_tools.call("echo", text="x" * (1 << 20))["text"]))
)";

constexpr char kParallel[] = R"(
import threading, casemate_tools
met = []
threads = [threading.Thread(target=lambda: met.append(casemate_tools.call("meet"))) for _ in range(4)]
sums = []
threads += [threading.Thread(target=lambda: sums.append(sum(casemate_tools.add(a=i, b=1) for i in range(20)))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(met, sums)
)";

constexpr char kChild[] = R"(
import os, subprocess, sys, casemate_tools
print(casemate_tools.add(a=1, b=1))
child = os.fork()
if child == 0:
    print("forked", casemate_tools.add(a=2, b=2))
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
code = "import casemate_tools; print('started', casemate_tools.add(a=3, b=3)); pass"
print(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout, end="")
print(subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{code}" && echo below a shell'], stdout=subprocess.PIPE, text=True).stdout, end="")
)";

constexpr char kRefusals[] = R"(
import casemate_tools

def refused(name, **arguments):
    try:
        print(name, casemate_tools.call(name, **arguments))
    except Exception as error:
        print(name, type(error).__name__, error)

refused("unknown", a=1)
refused("../add", a=1)
refused("add", a="x", b=1)
refused("add", a=1)
refused("add", a=1, b=1, c=1)
refused("fail")
refused("echo", not_json=float("nan"))
refused("echo", not_json={1})
calls = 0
try:
    while True:
        casemate_tools.call("echo")
        calls += 1
except casemate_tools.HostToolError as error:
    print(calls, error)
)";

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = [] {
    const std::string attempt = kAttempt;
    std::vector<Scenario> list{
        {.name = "environment", .program = kEnvironment},
        {.name = "user", .program = kUser},
        {.name = "proc", .program = attempt + kProc},
        {.name = "locale", .program = kLocale, .needs_boundary = false},
        {.name = "memory", .program = kMemory, .uses_up = Limit::memory},
        {.name = "pids", .program = kPids, .uses_up = Limit::pids},
        {.name = "disk", .program = kDisk, .uses_up = Limit::disk},
        {.name = "disk_exceeded", .program = kDiskExceeded},
        {.name = "open_files", .program = kOpenFiles},
        {.name = "timeout",
         .program = kForever,
         .timeout = std::chrono::seconds(4),
         .needs_boundary = false},
        {.name = "cpu_seconds", .wiring = Wiring::cpu_seconds, .program = kForever},
        {.name = "signals", .program = kSignals, .needs_boundary = false},
        {.name = "names", .program = attempt + kNames, .needs_boundary = false},
        {.name = "streams", .program = kStreams, .capture_bytes = 600, .needs_boundary = false},
        {.name = "files",
         .program = kFiles,
         .files = {"table.csv", "bytes.bin", "\u00dcbersicht.txt"},
         .outputs = {"report.txt", "bytes.out", "empty", "absent.txt"},
         .needs_boundary = false},
        {.name = "large_files",
         .program = kLargeFiles,
         .files = {"large.bin"},
         .outputs = {"larger.bin"},
         .needs_boundary = false},
        {.name = "refused_output",
         .program = kRefusedOutput,
         .outputs = {"file", "link", "pipe"},
         .needs_boundary = false},
        {.name = "host_tool_values", .wiring = Wiring::host_tools, .program = kValues},
        {.name = "host_tools_parallel", .wiring = Wiring::host_tools, .program = kParallel},
        {.name = "host_tools_child", .wiring = Wiring::host_tools, .program = kChild},
        {.name = "host_tools_refused", .wiring = Wiring::host_tools, .program = kRefusals},
    };
    return list;
  }();
  return all;
}

}  // namespace casemate::seam
