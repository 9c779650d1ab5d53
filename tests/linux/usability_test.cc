// Honest programs: what ordinary Python does must work as it does anywhere, or a boundary is
// switched off by its users. Each program checks itself and prints "fine".

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/linux/linux_test.h"

namespace casemate::linux_tests {
namespace {

struct HonestProgram {
  const char* name;
  const char* text;
  friend void PrintTo(const HonestProgram& program, std::ostream* to) { *to << program.name; }
};

class LinuxUsability : public LinuxTest, public testing::WithParamInterface<HonestProgram> {};

// RL-02, ISO-09
TEST_P(LinuxUsability, UnderTheDefaultLimitsRuns) {
  const ExecResult result = run(python(std::string(GetParam().text) + "\nprint('fine')\n"));
  EXPECT_EQ(result.stdout, "fine\n") << result.stderr;
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.limit, std::nullopt);
}

constexpr HonestProgram kPrograms[] = {
    {"Threads", R"(
import threading, queue, concurrent.futures
done = queue.Queue()
threads = [threading.Thread(target=done.put, args=(i,), name=f't{i}') for i in range(64)]
[t.start() for t in threads]; [t.join() for t in threads]
assert sorted(done.get() for _ in threads) == list(range(64))
with concurrent.futures.ThreadPoolExecutor(32) as pool: assert sum(pool.map(abs, range(-9, 9))) == 81
)"},
    {"Multiprocessing", R"(
import multiprocessing as mp, concurrent.futures
from multiprocessing import shared_memory
with mp.Pool(4) as pool: assert pool.map(abs, range(-3, 3)) == [3, 2, 1, 0, 1, 2]
q, lock, value = mp.Queue(), mp.Lock(), mp.Value('i', 0)
def work():
    with lock: value.value += 1
    q.put('done')
ps = [mp.Process(target=work) for _ in range(8)]
[p.start() for p in ps]; assert [q.get(timeout=20) for _ in ps] == ['done'] * 8; [p.join() for p in ps]
assert value.value == 8
block = shared_memory.SharedMemory(create=True, size=1 << 20); block.buf[0] = 7; block.close(); block.unlink()
with concurrent.futures.ProcessPoolExecutor(2) as pool: assert list(pool.map(abs, [-1, 2])) == [1, 2]
with mp.Manager() as manager: assert manager.dict(a=1)['a'] == 1
)"},
    {"Asyncio", R"(
import asyncio, os, threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
assert asyncio.run_coroutine_threadsafe(asyncio.sleep(0, result=42), loop).result(timeout=20) == 42
async def main():
    async def echo(r, w): w.write(await r.readline()); await w.drain(); w.close()
    for start, connect in ((lambda: asyncio.start_server(echo, '127.0.0.1', 0), None),
                           (lambda: asyncio.start_unix_server(echo, 'echo.sock'), 'echo.sock')):
        server = await start()
        r, w = await (asyncio.open_unix_connection(connect) if connect else
                      asyncio.open_connection(*server.sockets[0].getsockname()))
        w.write(b'hello\n'); assert await r.readline() == b'hello\n'; w.close(); server.close()
    child = await asyncio.create_subprocess_exec('echo', 'x', stdout=asyncio.subprocess.PIPE)
    assert (await child.communicate())[0] == b'x\n'
    assert await asyncio.to_thread(os.getpid) == os.getpid()
asyncio.run(main())
)"},
    {"Subprocess", R"(
import os, signal, subprocess, sys
assert subprocess.run(['true']).returncode == 0
assert subprocess.check_output('echo a | tr a b', shell=True) == b'b\n'
assert subprocess.run(['cat'], input=b'x' * 200000, stdout=subprocess.PIPE).stdout == b'x' * 200000
try: subprocess.run(['sleep', '60'], timeout=0.05); assert False
except subprocess.TimeoutExpired: pass
group = subprocess.Popen(['sleep', '60'], start_new_session=True); os.killpg(group.pid, signal.SIGTERM)
assert group.wait() == -signal.SIGTERM
assert subprocess.run([sys.executable, '-c', 'import os; os._exit(7)'], preexec_fn=lambda: os.nice(1)).returncode == 7
pid = os.posix_spawn('/bin/true', ['true'], os.environ); assert os.waitpid(pid, 0)[1] == 0
)"},
    {"Sqlite", R"(
import sqlite3
for mode in 'wal', 'delete':
    base = sqlite3.connect(mode + '.db'); assert base.execute('pragma journal_mode=' + mode).fetchone() == (mode,)
    base.execute('create table t (n)'); base.executemany('insert into t values (?)', [(i,) for i in range(1000)]); base.commit()
    assert sqlite3.connect(mode + '.db').execute('select sum(n) from t').fetchone() == (499500,)
)"},
    {"TemporaryFiles", R"(
import os, shutil, tempfile
held = [tempfile.TemporaryFile() for _ in range(200)]
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'a'); open(path, 'w').write('x')
    shutil.move(path, os.path.expanduser('~/moved')); assert open(os.path.expanduser('~/moved')).read() == 'x'
    os.makedirs(folder + '/d/e'); shutil.copytree(folder + '/d', folder + '/f'); os.rename(folder + '/f/e', folder + '/g')
name = tempfile.NamedTemporaryFile(dir='.'); os.link(name.name, 'hard'); os.symlink('hard', 'soft'); os.chmod('hard', 0o755)
fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'y'); os.link(f'/proc/self/fd/{fd}', 'linked', src_dir_fd=fd)
assert open('linked').read() == 'y'
)"},
    {"MemoryMaps", R"(
import mmap
mmap.mmap(-1, 1 << 30, prot=0)
m = mmap.mmap(-1, 1 << 20); m[:5] = b'hello'; assert m[:5] == b'hello'
f = open('mapped', 'w+b'); f.truncate(1 << 20); s = mmap.mmap(f.fileno(), 0); s[0] = 65; s.flush(); assert f.read(1) == b'A'
mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
)"},
    {"LargeFiles", R"(
import os
with open('sparse', 'wb') as f: f.seek(5 << 30); f.write(b'end')
assert os.stat('sparse').st_size == (5 << 30) + 3
with open('solid', 'wb') as f:
    for _ in range(100): f.write(b'x' * (1 << 20))
assert os.stat('solid').st_size == 100 << 20
assert os.sendfile(os.open('copy', os.O_CREAT | os.O_WRONLY), os.open('solid', os.O_RDONLY), 0, 1 << 20) == 1 << 20
)"},
    {"Locale", R"(
import locale, sys
assert locale.setlocale(locale.LC_ALL, '') == 'C.UTF-8' and locale.getpreferredencoding() == 'UTF-8'
assert sys.stdout.encoding == 'utf-8' and sys.getfilesystemencoding() == 'utf-8'
open('na\u00efve \u2603.txt', 'w').write('\u2603'); assert open('na\u00efve \u2603.txt').read() == '\u2603'
)"},
    {"TimeZones", R"(
import datetime, os, time, zoneinfo
os.environ['TZ'] = 'UTC'; time.tzset(); assert time.tzname[0] == 'UTC'
os.environ['TZ'] = 'EST5EDT'; time.tzset(); assert time.localtime(0).tm_hour == 19
if os.path.exists('/usr/share/zoneinfo/Europe/Berlin'):
    assert datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin')).utcoffset().seconds == 7200
assert time.monotonic() > 0 and time.clock_getres(time.CLOCK_REALTIME) > 0 and time.get_clock_info('perf_counter')
)"},
    {"Signals", R"(
import os, signal, threading
got = []
signal.signal(signal.SIGUSR1, lambda n, f: got.append(n)); os.kill(os.getpid(), signal.SIGUSR1); assert got == [signal.SIGUSR1]
signal.signal(signal.SIGALRM, lambda n, f: got.append(n)); signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01); signal.pause(); signal.setitimer(signal.ITIMER_REAL, 0)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}); os.kill(os.getpid(), signal.SIGUSR2); assert signal.sigwait({signal.SIGUSR2})
assert signal.sigtimedwait({signal.SIGUSR2}, 0.01) is None
pid = os.fork()
if pid == 0: signal.pause()
os.kill(pid, signal.SIGKILL); assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
fd = os.pidfd_open(os.getpid()); signal.pidfd_send_signal(fd, signal.SIGUSR1)
signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
)"},
    {"SharedMemoryFiles", R"(
import os, stat
assert stat.S_ISDIR(os.stat('/dev/shm').st_mode) and os.stat('/dev/shm').st_mode & 0o1777 == 0o1777
open('/dev/shm/x', 'wb').write(b'x' * (8 << 20)); assert os.stat('/dev/shm/x').st_size == 8 << 20
)"},
    {"Tls", R"(
import hashlib, secrets, socket, ssl, threading
context = ssl.create_default_context(); assert context.cert_store_stats()['x509_ca'] > 0
assert hashlib.sha256(b'').hexdigest().startswith('e3b0c442') and len(secrets.token_bytes(32)) == 32
a, b = socket.socketpair()
client = context.wrap_socket(a, server_hostname='localhost', do_handshake_on_connect=False); assert client.version() is None
)"},
    {"Users", R"(
import getpass, grp, os, platform, pwd, socket
assert getpass.getuser() == 'user' and pwd.getpwuid(os.getuid()).pw_dir == os.path.expanduser('~') == '/home/user'
assert grp.getgrgid(os.getgid()).gr_name == 'user' and os.access(os.path.expanduser('~'), os.W_OK)
assert socket.gethostname() == platform.node() == 'sandbox' and socket.gethostbyname('localhost') == '127.0.0.1'
)"},
    {"Terminals", R"(
import os, pty, termios, tty
master, slave = pty.openpty(); assert os.isatty(slave) and os.ttyname(slave).startswith('/dev/pts/')
tty.setraw(slave); os.write(slave, b'out'); assert os.read(master, 10) == b'out'
termios.tcsetwinsize(slave, (50, 100)); assert os.get_terminal_size(slave) == (100, 50)
pid, fd = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh', '-c', 'tty >/dev/null && echo on a terminal'])
said = b''
while not said.endswith(b'\n'): said += os.read(fd, 100)
assert said == b'on a terminal\r\n'; assert os.waitpid(pid, 0)[1] == 0
)"},
    {"Scheduling", R"(
import os, resource, time
assert os.sched_getaffinity(0) and os.cpu_count() >= 1
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.sched_yield(); assert os.sched_getscheduler(0) == os.SCHED_OTHER
before = os.getpriority(os.PRIO_PROCESS, 0); os.nice(1); assert os.getpriority(os.PRIO_PROCESS, 0) == min(before + 1, 19); assert os.getloadavg()
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
)"},
    {"Ctypes", R"(
import ctypes, ctypes.util
libc = ctypes.CDLL(None, use_errno=True); assert libc.strlen(b'four') == 4
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))(lambda a, b: a[0] - b[0])
numbers = (ctypes.c_int * 5)(5, 1, 4, 2, 3); libc.qsort(numbers, 5, 4, compare); assert list(numbers) == [1, 2, 3, 4, 5]
assert libc.prctl(15, b'renamed', 0, 0, 0) == 0 and open('/proc/self/comm').read() == 'renamed\n'
open(f'/proc/self/task/{libc.gettid()}/comm', 'w').write('again')
)"},
    {"Sockets", R"(
import os, selectors, socket
server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname()); peer, _ = server.accept()
client.sendall(b'x' * 1000); assert peer.recv(1) == b'x'
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0)); u.sendto(b'd', u.getsockname()); assert u.recv(9) == b'd'
if socket.has_dualstack_ipv6() and os.path.exists('/proc/net/if_inet6') and open('/proc/net/if_inet6').read():
    six = socket.create_server(('::1', 0), family=socket.AF_INET6); socket.create_connection(six.getsockname()[:2])
left, right = socket.socketpair(); socket.send_fds(left, [b'f'], [0]); assert len(socket.recv_fds(right, 9, 1)[1]) == 1
with selectors.EpollSelector() as poll: poll.register(right, selectors.EVENT_READ); left.send(b'r'); assert poll.select(20)
assert socket.if_nameindex()
)"},
    {"FilesOfTheKernel", R"(
import fcntl, os
fd = os.memfd_create('m'); os.write(fd, b'x'); assert os.fstat(fd).st_size == 1
lock = open('lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX); fcntl.lockf(lock, fcntl.LOCK_EX)
r, w = os.pipe(); assert fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 1 << 20) == 1 << 20
assert len(os.urandom(8)) == len(os.getrandom(8)) == 8
open('/dev/null', 'w').write('x'); assert open('/dev/zero', 'rb').read(2) == b'\0\0'; open('/dev/full', 'rb').read(1)
assert os.listdir('/proc/self/fd') and open('/proc/meminfo').readline().startswith('MemTotal') and os.path.realpath('/proc/self/exe')
copied = os.copy_file_range(os.open('lock', os.O_RDONLY), os.open('lock2', os.O_CREAT | os.O_WRONLY), 10); assert copied == 0
)"},
    {"Archives", R"(
import gzip, io, json, pickle, tarfile, zipfile, csv, xml.etree.ElementTree, decimal, statistics, uuid, random
with zipfile.ZipFile('a.zip', 'w', zipfile.ZIP_DEFLATED) as z: z.writestr('n', 'x' * 10000)
assert zipfile.ZipFile('a.zip').read('n') == b'x' * 10000
with tarfile.open('a.tgz', 'w:gz') as t: t.add('a.zip')
tarfile.open('a.tgz').extractall('out'); assert open('out/a.zip', 'rb').read() == open('a.zip', 'rb').read()
assert json.loads(json.dumps({'a': [1, None]})) and pickle.loads(pickle.dumps({1: 2})) == {1: 2} and uuid.uuid1() and uuid.uuid4()
)"},
    {"ShellScripts", R"(
import subprocess
script = r'''
set -e
cd $(mktemp -d); trap 'rm -rf "$PWD"' EXIT
seq 1 100 | sort -rn | head -3 | tee out | awk '{s += $1} END {print s}'
cat <<< here
mkfifo pipe; (echo through > pipe &) ; cat pipe
find . -type f | xargs grep -c 9 ; test -w /dev/stdout ; sed -n 1p out ; date -u -d @0 +%Y ; env | grep -c HOME
'''
assert subprocess.check_output(['bash', '-c', script]).split() == [b'297', b'here', b'through', b'2', b'100', b'1970', b'1']
)"},
    {"Compiler", R"(
import os, shutil, subprocess
if shutil.which('cc'):
    open('a.c', 'w').write('#include <pthread.h>\n#include <stdio.h>\nvoid* f(void* p) { return p; }\n'
                           'int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts("built"); }')
    subprocess.run(['cc', '-O2', '-o', 'a', 'a.c'], check=True); assert subprocess.check_output(['./a']) == b'built\n'
)"},
};

INSTANTIATE_TEST_SUITE_P(Python, LinuxUsability, testing::ValuesIn(kPrograms),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace casemate::linux_tests
