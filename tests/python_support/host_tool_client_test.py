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
                except OSError:
                    pass  # the caller has had enough

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
