// What honest programs need must work: a place that is safe because nothing runs in it is no use.

#include <array>
#include <string_view>
#include <utility>

#include "casemate/conformance/guest_program.h"
#include "casemate/conformance/probe.h"

namespace casemate::conformance {
namespace {

struct Need {
  std::string_view id;
  std::string_view sentence;
  std::string_view program;
};

constexpr auto kNeeds = std::to_array<Need>({
    {"threads", "threads run and share memory", R"py(
import threading
lock, total = threading.Lock(), 0
def work():
    global total
    for _ in range(1000):
        with lock:
            total += 1
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if total != 8000: print("threads counted", total)
)py"},
    {"multiprocessing", "worker processes share semaphores and queues", R"py(
import multiprocessing
with multiprocessing.Pool(2) as pool:
    squares = pool.map(abs, [-1, -2, -3])
if squares != [1, 2, 3]: print("a pool gave", squares)
)py"},
    {"asyncio", "event loops serve loopback and child processes", R"py(
import asyncio
async def main():
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello\n")
    if await reader.read() != b"HELLO\n": print("no echo over loopback")
    writer.close()
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    if (await child.communicate(b"x"))[0] != b"x": print("no echo of a child")
asyncio.run(main())
)py"},
    {"subprocess", "children get pipes, signals and exit codes", R"py(
import signal, subprocess
piped = subprocess.run("tr a-z A-Z | cat", shell=True, input=b"abc", capture_output=True)
if piped.stdout != b"ABC": print("a pipe gave", piped)
if subprocess.run(["sh", "-c", "exit 3"]).returncode != 3: print("an exit code was lost")
child = subprocess.Popen(["sleep", "60"])
child.send_signal(signal.SIGTERM)
if child.wait(20) != -signal.SIGTERM: print("a signal was lost")
for _ in range(50):
    subprocess.run(["true"], check=True)
)py"},
    {"sqlite3", "a database is written, indexed and read", R"py(
import sqlite3
with sqlite3.connect("data.db") as database:
    database.execute("pragma journal_mode = wal")
    database.execute("create table t (n integer primary key, s text)")
    database.executemany("insert into t (s) values (?)", [(str(n),) for n in range(1000)])
if sqlite3.connect("data.db").execute("select count(*), max(n) from t").fetchone() != (1000, 1000):
    print("rows are missing")
)py"},
    {"temporary-files", "temporary files and directories come and go", R"py(
import os, subprocess, tempfile
made = subprocess.run(["mktemp"], capture_output=True, text=True).stdout.strip()
if not made: print("mktemp makes nothing")
else: os.unlink(made)
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x"); file.flush()
    if os.path.getsize(file.name) != 1: print("a temporary file was lost")
with tempfile.TemporaryDirectory() as folder:
    open(os.path.join(folder, "a"), "w").close()
if os.path.exists(folder): print("a temporary directory stayed")
)py"},
    {"memory-maps", "files and shared memory are mapped", R"py(
import mmap
from multiprocessing import shared_memory
with open("mapped", "w+b") as file:
    file.truncate(1 << 20)
    with mmap.mmap(file.fileno(), 0) as view: view[5] = 7
if open("mapped", "rb").read()[5] != 7: print("a mapped file kept nothing")
# Reserved, as run-time systems do; a bound on addresses would refuse what costs nothing.
with mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) as view: view[5] = 7
block = shared_memory.SharedMemory(create=True, size=4096)
block.buf[0] = 9
again = shared_memory.SharedMemory(name=block.name)
if again.buf[0] != 9: print("shared memory is not shared")
again.close()
block.close(); block.unlink()
)py"},
    {"large-files", "files of tens of megabytes are written and read", R"py(
chunk = bytes(range(256)) * 4096
with open("large", "wb") as file:
    for _ in range(32): file.write(chunk)
with open("large", "rb") as file:
    if any(file.read(len(chunk)) != chunk for _ in range(32)): print("a large file changed")
)py"},
    {"text", "text and names of files are UTF-8", R"py(
import locale, os, sys
locale.setlocale(locale.LC_ALL, "")
for name, encoding in (("file system", sys.getfilesystemencoding()), ("output", sys.stdout.encoding),
                       ("locale", locale.getpreferredencoding())):
    if encoding.lower().replace("-", "") != "utf8": print("the", name, "has", encoding)
name = "\u017elu\u0165\U0001f40e"
open(name, "w").close()
if name not in os.listdir("."): print("a name was lost")
)py"},
    {"time-zones", "clocks run and time zones are known", R"py(
import datetime, os, time, zoneinfo
noon = datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Prague"))
if noon.utcoffset() != datetime.timedelta(hours=2): print("Prague is at", noon.utcoffset())
os.environ["TZ"] = "Asia/Tokyo"; time.tzset()
if time.localtime(0).tm_hour != 9: print("TZ is not heeded")
before = time.monotonic(); time.sleep(0.01)
if time.monotonic() <= before or time.time() < 1.6e9: print("a clock stands")
)py"},
    {"signals", "programs handle alarms and signals of their own", R"py(
import os, signal
seen = []
for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda got, frame: seen.append(got))
signal.setitimer(signal.ITIMER_REAL, 0.01)
while not seen: signal.sigtimedwait([signal.SIGCHLD], 0.01)
os.kill(os.getpid(), signal.SIGTERM)
signal.raise_signal(signal.SIGUSR1)
if seen != [signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1]: print("signals seen:", seen)
)py"},
    {"devices", "the usual devices are there", R"py(
import os, secrets
if open("/dev/zero", "rb").read(4) != bytes(4): print("/dev/zero is none")
with open("/dev/null", "r+b") as null:
    null.write(b"x")
    if null.read(): print("/dev/null is none")
if len(open("/dev/urandom", "rb").read(8)) != 8 or len(secrets.token_bytes(8)) != 8: print("no random")
with open("/dev/shm/probe", "w") as file: file.write("x")
if os.path.getsize("/dev/shm/probe") != 1: print("/dev/shm keeps nothing")
os.unlink("/dev/shm/probe")
)py"},
    {"home", "there is a home directory that can be written", R"py(
import os
home = os.path.expanduser("~")
path = os.path.join(home, "probe-of-home")
with open(path, "w") as file: file.write("x")
os.unlink(path)
)py"},
    {"locks", "files are locked between processes", R"py(
import fcntl, os
with open("lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.fork() == 0:
        try:
            fcntl.flock(open("lock", "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os._exit(0)
        os._exit(1)
    if os.waitstatus_to_exitcode(os.wait()[1]) != 0: print("a lock does not hold")
)py"},
    {"memory", "a hundred megabytes can be used", R"py(
block = bytearray(100 << 20)
block[::4096] = b"x" * len(block[::4096])
if block.count(b"x") != len(block) // 4096: print("memory was lost")
)py"},
});

template <std::size_t I>
void meet(Trial& trial) {
  expect_done(trial, kNeeds[I].sentence, kNeeds[I].program);
}

template <std::size_t... I>
constexpr auto as_probes(std::index_sequence<I...>) {
  return std::array{Probe{kNeeds[I].id, kNeeds[I].sentence, meet<I>}...};
}

}  // namespace

std::span<const Probe> usability_probes() {
  static constexpr auto kProbes = as_probes(std::make_index_sequence<kNeeds.size()>());
  return kProbes;
}

}  // namespace casemate::conformance
