"""What callers of host tools make of a host that lies: the module and casemate-call, as programs in a
sandbox have them, against a socket that answers what it is told to. Refused or bounded, never
believed, never a crash."""

import os
import select
import socket
import struct
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CALL = Path(os.environ["CASEMATE_BUILD_DIR"]) / "casemate-call"
MODULE = """
import sys, casemate_tools
try:
    print(casemate_tools.call("f", a=1))
except casemate_tools.HostToolError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""
# The second time when it is told to.
TWICE = """
import sys, casemate_tools
print(casemate_tools.call("f", a=0), end=" ", flush=True)
sys.stdin.readline()
try:
    print(casemate_tools.call("f", a=1))
except casemate_tools.HostToolError:
    print("lost")
"""
NONSENSE = "Error: the host's answer makes no sense.\n"
LOST = "Error: the connection to the host was lost; whether the call was made is not known.\n"


ID = 0x80000001


def answer(text, kind=0, number=ID):
    body = struct.pack("<IB", number, kind) + text
    return struct.pack("<I", len(body)) + body


class Host:
    """Takes connections on a path; reads one request of each, sends `script(n)` and closes."""

    def __init__(self, script):
        self.folder = tempfile.TemporaryDirectory()
        self.address = os.path.join(self.folder.name, "s")
        self.requests = []
        self.script = script
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.address)
        self.socket.listen(16)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                try:
                    head = connection.recv(4, socket.MSG_WAITALL)
                    self.requests.append(connection.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))
                    for part in self.script(len(self.requests)):
                        connection.sendall(part)
                except (OSError, struct.error):
                    pass  # the caller has had enough, or died before it said anything

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(30)
        self.folder.cleanup()


class Case(unittest.TestCase):
    def host(self, *parts, script=None):
        host = Host(script or (lambda _: parts))
        self.addCleanup(host.close)
        return host

    def run_argv(self, argv, host, stdin=b""):
        environment = {"CASEMATE_HOST_TOOLS": host if isinstance(host, str) else host.address,
                       "PYTHONPATH": str(ROOT / "casemate" / "guest" / "support"),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        # Of address space: what an answer announces is not believed.
        done = subprocess.run(["/bin/sh", "-c", 'ulimit -v 1000000; exec "$@"', "-", *argv],
                              input=stdin, capture_output=True, env=environment, timeout=60)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def callers(self):
        yield "module", ["/usr/bin/python3", "-c", MODULE]
        yield "casemate-call", [str(CALL), "f", '{"a":1}']

    def assertCallers(self, expected, *parts):
        for who, argv in self.callers():
            with self.subTest(who=who, parts=parts):
                host = self.host(*parts)
                self.assertEqual(self.run_argv(argv, host), expected)
                self.assertEqual(host.requests, [struct.pack("<IH", ID, 1) + b'f{"a":1}'])


class Callers(Case):
    def test_a_value_and_a_refusal_are_what_they_are(self):
        self.assertCallers((0, "42\n", ""), answer(b"42"))
        self.assertCallers((1, "", "Error: no.\n"), answer(b"Error: no.", kind=1))

    def test_an_answer_may_come_in_any_pieces(self):
        whole = answer(b'"' + b"x" * 100_000 + b'"')
        for who, argv in self.callers():
            with self.subTest(who=who):
                pieces = [whole[i:i + 1] for i in range(20)] + [whole[20:70_000], whole[70_000:]]
                status, out, err = self.run_argv(argv, self.host(*pieces))
                self.assertEqual((status, len(out.strip().strip('"')), err), (0, 100_000, ""))

    def test_a_host_that_closes_leaves_no_answer(self):
        for parts in ((), (b"\1",), (answer(b"42")[:8],), (answer(b"42")[:9],), (answer(b"4242")[:-1],)):
            self.assertCallers((1, "", LOST), *parts)

    def test_an_answer_that_makes_no_sense_is_none(self):
        for parts in ((b"\0" * 64,), (b"\xff" * 64,), (struct.pack("<I", 4) + b"abcdefgh",),
                      (struct.pack("<IIB", 0xFFFFFFFF, ID, 0) + b"1",), (answer(b"1", kind=2),),
                      (answer(b"1", kind=0xFF),), (answer(b"1", number=2),), (answer(b"1", number=0),)):
            self.assertCallers((1, "", NONSENSE), *parts)

    def test_the_module_takes_no_value_that_is_no_json(self):
        """For casemate-call the value is text, which whoever reads it has to take apart."""
        for text in (b"", b"nonsense", b"1 2", b"{", b"NaN", b"\xff\xfe", b"[" * 100_000, b'{"a":1}x'):
            with self.subTest(text=text[:20]):
                self.assertEqual(self.run_argv(["/usr/bin/python3", "-c", MODULE], self.host(answer(text))),
                                 (1, "", NONSENSE))

    def test_a_host_with_too_many_connections_is_asked_again(self):
        for who, argv in self.callers():
            with self.subTest(who=who):
                host = self.host(script=lambda n: [answer(b"Error: 64.", kind=2, number=0) if n < 4
                                                   else answer(b"true")])
                status, out, _ = self.run_argv(argv, host)
                self.assertEqual((status, out.strip().lower(), len(host.requests)), (0, "true", 4))

    def test_a_kept_connection_that_the_host_ended_is_replaced_and_nothing_asked_twice(self):
        """Whether it ends it behind an answer, later with a word, later without one, or with the next
        request unread; a call that may have been made is not repeated."""
        goodbye = answer(b"Error: needed.", kind=2, number=0)
        ways = {
            "behind an answer": ([answer(b"1") + goodbye], None, "1 2"),
            "later, with a word": ([answer(b"1"), goodbye], None, "1 2"),
            "later, without a word": ([answer(b"1")], None, "1 2"),
            "with a request unread": ([answer(b"1")], goodbye, "1 2"),
            "with a request read": ([answer(b"1")], b"", "1 lost"),
        }
        for way, (first, second, expected) in ways.items():
            with self.subTest(way=way), tempfile.TemporaryDirectory() as folder:
                asked = []
                with socket.socket(socket.AF_UNIX) as listening:
                    listening.bind(folder + "/s")
                    listening.listen(4)
                    listening.settimeout(60)
                    caller = subprocess.Popen(
                        ["/usr/bin/python3", "-c", TWICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        env={"CASEMATE_HOST_TOOLS": folder + "/s", "PYTHONDONTWRITEBYTECODE": "1",
                             "PYTHONPATH": str(ROOT / "casemate" / "guest" / "support")})

                    def request(connection):
                        head = connection.recv(4, socket.MSG_WAITALL)
                        asked.append(connection.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)[-2:-1])

                    connection, _ = listening.accept()
                    self.addCleanup(connection.close)
                    request(connection)
                    for part in first:
                        connection.sendall(part)
                    self.assertEqual(caller.stdout.read(2), b"1 ")
                    if second is None:
                        connection.close()
                    caller.stdin.write(b"go on\n")
                    caller.stdin.flush()
                    if second == b"":
                        request(connection)
                        connection.close()
                    elif second is not None:
                        select.select([connection], [], [], 60)
                        connection.sendall(second)
                        connection.shutdown(socket.SHUT_RDWR)
                    if expected == "1 2":
                        again, _ = listening.accept()
                        self.addCleanup(again.close)
                        request(again)
                        again.sendall(answer(b"2"))
                    out, _ = caller.communicate(timeout=60)
                    self.assertEqual("1 " + out.decode().strip(), expected)
                    self.assertEqual(asked, [b"0", b"1"])

    def test_what_is_no_request_is_not_asked_again(self):
        for who, argv in self.callers():
            with self.subTest(who=who):
                host = self.host(answer(b"Error: no request.", kind=1, number=0))
                self.assertEqual(self.run_argv(argv, host), (1, "", "Error: no request.\n"))
                self.assertEqual(len(host.requests), 1)

    def test_the_module_sends_nothing_that_the_host_would_not_read_over(self):
        host = self.host(answer(b"1"))
        program = MODULE.replace("a=1", 'a="x" * ((64 << 20) - 15 + 1)')
        status, out, err = self.run_argv(["/usr/bin/python3", "-c", program], host)
        self.assertEqual((status, out, err), (1, "", "Error: the arguments are too large: the request has "
                                              "67108865 bytes; one may have 67108864.\n"))
        self.assertEqual(host.requests, [])

    def test_without_a_host_there_is_a_sentence(self):
        for who, argv in self.callers():
            with self.subTest(who=who), tempfile.TemporaryDirectory() as folder:
                self.assertEqual(self.run_argv(argv, folder + "/none"),
                                 (1, "", "Error: this run has no host tools.\n"))
                nobody = folder + "/nobody"
                with socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(nobody)
                status, out, err = self.run_argv(argv, nobody)
                self.assertEqual((status, out), (1, ""))
                self.assertTrue(err.startswith("Error: the host cannot be reached"), err)


class Answering:
    """Takes connections on a path and keeps what is asked on each; a test answers."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.address = os.path.join(self.folder.name, "s")
        self.changed = threading.Condition()
        self.asked = []  # (connection, id, the request behind it)
        self.connections = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.address)
        self.socket.listen(64)
        self.threads = [threading.Thread(target=self.take, daemon=True)]
        self.threads[0].start()

    def take(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections.append(connection)
            reader = threading.Thread(target=self.read, args=(connection,), daemon=True)
            self.threads.append(reader)
            reader.start()

    def read(self, connection):
        while True:
            try:
                head = connection.recv(8, socket.MSG_WAITALL)
                if len(head) < 8:
                    return
                length, number = struct.unpack("<II", head)
                rest = connection.recv(length - 4, socket.MSG_WAITALL)
            except OSError:
                return
            with self.changed:
                self.asked.append((connection, number, rest))
                self.changed.notify_all()

    def await_requests(self, count):
        """The first `count` that nobody has answered."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.asked) >= count, 60):
                raise AssertionError(f"{len(self.asked)} of {count} requests came")
            taken, self.asked = self.asked[:count], self.asked[count:]
        return taken

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self.threads:
            thread.join(60)
        for connection in self.connections:
            connection.close()
        self.socket.close()
        self.folder.cleanup()


# `threads` threads that call `rounds` times each, with what tells each call; prints what came of
# each, sorted.
THREADS = """
import casemate_tools, sys, threading
threads, rounds = map(int, sys.argv[1:3])
ends = []
def work(thread):
    for turn in range(rounds):
        try:
            ends.append((thread, turn, casemate_tools.call("f", n=thread * 1000 + turn)))
        except casemate_tools.HostToolError as error:
            ends.append((thread, turn, str(error)))
all = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
for each in all: each.start()
for each in all: each.join()
for each in sorted(ends): print(*each)
"""


class Threads(Case):
    """Those that call at the same time: whatever comes of one must not come of another."""

    def begin(self, program, *words):
        host = Answering()
        self.addCleanup(host.close)
        caller = subprocess.Popen(
            ["/usr/bin/python3", "-c", program, *map(str, words)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={"CASEMATE_HOST_TOOLS": host.address, "PYTHONDONTWRITEBYTECODE": "1",
                 "PYTHONPATH": str(ROOT / "casemate" / "guest" / "support")})
        self.addCleanup(caller.communicate)
        self.addCleanup(caller.kill)
        return host, caller

    def end(self, caller):
        out, err = caller.communicate(timeout=60)
        self.assertEqual((err, caller.returncode), ("", 0))
        return out.splitlines()

    @staticmethod
    def said(request):
        """The number that a call of THREADS gave."""
        return request[2].partition(b":")[2].rstrip(b"}")

    def give(self, request):
        request[0].sendall(answer(self.said(request), number=request[1]))

    def test_answers_in_any_order_are_never_crossed(self):
        host, caller = self.begin(THREADS, 8, 20)
        for turn in range(20):
            asked = host.await_requests(8)
            for request in asked[::-1] if turn % 2 else asked:
                self.give(request)
        self.assertEqual(self.end(caller),
                         [f"{thread} {turn} {thread * 1000 + turn}" for thread in range(8) for turn in range(20)])

    def test_answers_may_come_in_any_pieces_and_together(self):
        host, caller = self.begin(THREADS, 6, 10)
        for turn in range(10):
            by_connection = {}
            for request in host.await_requests(6):
                by_connection.setdefault(request[0], b"")
                by_connection[request[0]] += answer(b"%s%s" % (self.said(request), b" " * 3000), number=request[1])
            for connection, text in by_connection.items():
                size = len(text) if turn % 3 == 0 else turn * 977
                for at in range(0, len(text), size):
                    connection.sendall(text[at:at + size])
        self.assertEqual(len(self.end(caller)), 60)

    def test_a_call_that_is_not_answered_holds_up_nobody_else(self):
        host, caller = self.begin(THREADS, 4, 50)
        held = []
        given = 0
        # The others may be through before the one that is not answered has asked at all.
        while given < 150 or not held:
            for request in host.await_requests(1):
                # Whoever asks first, whose thread may receive for the others.
                number = int(self.said(request))
                if number // 1000 == 3:
                    held.append(request)
                else:
                    self.give(request)
                    given += 1
        self.assertEqual(len(held), 1)
        self.give(held[0])
        for _ in range(49):
            self.give(host.await_requests(1)[0])
        self.assertEqual(len(self.end(caller)), 200)

    def test_of_a_connection_that_is_lost_everybody_hears_and_the_next_call_is_made_on_another(self):
        host, caller = self.begin(THREADS, 8, 2)
        asked = host.await_requests(8)
        for connection in {request[0] for request in asked}:
            connection.shutdown(socket.SHUT_RDWR)
        for request in host.await_requests(8):
            self.give(request)
        self.assertEqual(self.end(caller), [line for thread in range(8) for line in
                                            (f"{thread} 0 {LOST.strip()}", f"{thread} 1 {thread * 1000 + 1}")])

    def test_an_answer_that_makes_no_sense_ends_the_calls_of_its_connection_alone(self):
        for nonsense in (b"\xff" * 64, b"\0" * 64, answer(b"1", number=77), answer(b"1", number=77, kind=9)):
            with self.subTest(nonsense=nonsense):
                host, caller = self.begin(THREADS, 8, 1)
                asked = host.await_requests(8)
                connections = [request[0] for request in asked]
                line = max(connections, key=connections.count)
                line.sendall(nonsense)
                for request in asked:
                    if request[0] is not line:
                        self.give(request)
                ends = self.end(caller)
                self.assertEqual(sum(end.endswith(NONSENSE.strip()) for end in ends), connections.count(line))
                self.assertEqual(len(ends), 8)

    def test_a_value_that_is_no_json_is_its_own_calls_end(self):
        host, caller = self.begin(THREADS, 8, 1)
        for request in host.await_requests(8):
            bad = self.said(request) == b"5000"
            request[0].sendall(answer(b"{" if bad else self.said(request), number=request[1]))
        ends = self.end(caller)
        self.assertEqual([end for end in ends if not end.endswith(end[0] + "000") and end[0] != "0"],
                         ["5 0 " + NONSENSE.strip()])

    def test_what_the_host_has_not_read_is_asked_again_and_once(self):
        host, caller = self.begin(THREADS, 8, 1)
        asked = host.await_requests(8)
        connections = {request[0] for request in asked}
        for connection in connections:
            connection.sendall(answer(b"Error: needed.", kind=2, number=0))
            connection.shutdown(socket.SHUT_RDWR)
        for request in host.await_requests(8):
            self.assertNotIn(request[0], connections)
            self.give(request)
        self.assertEqual(self.end(caller), [f"{thread} 0 {thread * 1000}" for thread in range(8)])
        self.assertEqual(host.asked, [])

    def test_children_of_a_fork_have_connections_of_their_own(self):
        host, caller = self.begin("""
import os, threading, time
import casemate_tools
def calling():
    for n in range(200): assert casemate_tools.call("f", n=n) == n
threads = [threading.Thread(target=calling) for _ in range(4)]
for each in threads: each.start()
children = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        inner = [threading.Thread(target=calling) for _ in range(3)]
        for each in inner: each.start()
        for each in inner: each.join()
        os._exit(0)
    children.append(child)
for each in threads: each.join()
print([os.waitpid(child, 0)[1] for child in children])
""")
        for _ in range(4 * 200 + 10 * 3 * 200):
            self.give(host.await_requests(1)[0])
        self.assertEqual(self.end(caller), [str([0] * 10)])

    def test_handlers_of_signals_and_destructors_may_call(self):
        """Each from within a call of the same thread's, which may be what others wait for."""
        host, caller = self.begin("""
import signal, sys, threading
import casemate_tools
over = False
handled = 0
def handler(*_):
    global handled
    handled += casemate_tools.call("f", n=1)
    # Not before: where a call takes longer than the timer, handlers would run within handlers for ever.
    if not over: signal.setitimer(signal.ITIMER_REAL, 0.001)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001)
class Calling:
    def __init__(self): self.me = self
    def __del__(self): casemate_tools.call("f", n=2)
def work():
    # So many at most: threads that always have something to do keep the interpreter from the first.
    for _ in range(200):
        if over: break
        assert casemate_tools.call("f", n=3) == 3
        Calling()
threads = [threading.Thread(target=work) for _ in range(6)]
import gc
gc.set_threshold(5)
for each in threads: each.start()
while handled < 50: assert casemate_tools.call("f", n=4) == 4
over = True
signal.setitimer(signal.ITIMER_REAL, 0)
for each in threads: each.join()
gc.disable()
print("over")
sys.stdout.flush()
import os
os._exit(0)
""")
        stopped = threading.Event()

        def serve():
            while not stopped.is_set():
                with host.changed:
                    host.changed.wait_for(lambda: host.asked or stopped.is_set(), 60)
                    asked, host.asked = host.asked, []
                for request in asked:
                    try:
                        self.give(request)
                    except OSError:
                        pass  # of a process that has ended

        server = threading.Thread(target=serve)
        server.start()
        try:
            self.assertEqual(self.end(caller), ["over"])
        finally:
            stopped.set()
            with host.changed:
                host.changed.notify_all()
            server.join()

    def test_threads_that_are_there_at_the_end_do_not_hold_it_up(self):
        host, caller = self.begin("""
import threading, time
import casemate_tools
def calling():
    for _ in range(200): casemate_tools.call("f", n=0)
    casemate_tools.call("f", n=2)
for _ in range(4): threading.Thread(target=calling, daemon=True).start()
for _ in range(50): casemate_tools.call("f", n=1)
print("over", flush=True)
""")
        served = 0
        while served < 50:
            request = host.await_requests(1)[0]
            served += self.said(request) == b"1"
            if self.said(request) != b"2":  # so each of them is in a call at the end
                self.give(request)
        self.assertEqual(self.end(caller), ["over"])


class CasemateCall(Case):
    def test_words_that_are_no_call_are_told_by_status_2(self):
        host = self.host()
        for words in ([], ["f"], ["f", "{}", "more"], ["", "{}"], ["x" * 65536, "{}"]):
            with self.subTest(words=words):
                status, out, err = self.run_argv([str(CALL), *words], host)
                self.assertEqual((status, out), (2, ""))
                self.assertTrue(err)
        for address in ("", "/" + "x" * 200):
            self.assertEqual(self.run_argv([str(CALL), "f", "{}"], address)[0], 2)
        self.assertEqual(host.requests, [])
        status, out, err = self.run_argv([str(CALL), "--help"], host)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("casemate-call NAME JSON", out)

    def test_arguments_come_from_standard_input_too_up_to_64_mib(self):
        for size in (0, 1, 65_535, 65_536, 300_000, 8 << 20):
            with self.subTest(size=size):
                host = self.host(answer(b"1"))
                text = b"x" * size
                self.assertEqual(self.run_argv([str(CALL), "f", "-"], host, text), (0, "1\n", ""))
                self.assertEqual(host.requests, [struct.pack("<IH", ID, 1) + b"f" + text])
        host = self.host(answer(b"1"))
        most = (64 << 20) - 11
        self.assertEqual(self.run_argv([str(CALL), "f", "-"], host, b"x" * most)[0], 0)
        status, _, err = self.run_argv([str(CALL), "f", "-"], host, b"x" * (most + 1))
        self.assertEqual((status, err), (2, "casemate-call: the arguments are over 64 MiB\n"))
        self.assertEqual(len(host.requests), 1)

    def test_an_answer_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([str(CALL), "f", "{}"], stdout=full, stderr=subprocess.PIPE,
                                  env={"CASEMATE_HOST_TOOLS": self.host(answer(b"1")).address}, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (1, b"casemate-call: the answer cannot be written\n"))

    def test_it_is_small_and_needs_nothing(self):
        self.assertLess(CALL.stat().st_size, 32 * 1024)
        headers = subprocess.run(["readelf", "-lW", CALL], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("INTERP", headers)
        self.assertNotRegex(headers, "RWE")
        self.assertRegex(headers, "GNU_STACK.* RW ")


if __name__ == "__main__":
    unittest.main()
