"""Cases EG: what a program reaches of the world outside, through the doors and past them.

The world is egress_world.py's, in namespaces of its own; `casemate` runs in them too, so that its name
server and its network are those of the test.
"""

import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from harness import Case, NEEDS_ROOT, PROGRAM, ROOT

sys.path.insert(0, str(Path(__file__).resolve().parent))
from egress_world import PRIVATE, PUBLIC, PUBLIC6  # noqa: E402

WITHOUT_PROXY = "import os\nfor k in list(os.environ):\n    if k.lower().endswith('_proxy'): del os.environ[k]\n"
RUN = "import subprocess, sys\ndef run(*words):\n    done = subprocess.run(words, capture_output=True, text=True)\n" \
      "    print(done.stdout, end=''); print(done.stderr, end='', file=sys.stderr); return done.returncode\n"
# Talks to the proxy itself; bytes in, all of the answer out.
PROXY = """
import os, socket
def proxy(data, more=b""):
    host, port = os.environ["HTTP_PROXY"][len("http://"):].split(":")
    with socket.create_connection((host, int(port)), 20) as s:
        s.sendall(data)
        answer = b""
        try:
            if more:
                answer = s.recv(65536)
                s.sendall(more)
            s.shutdown(socket.SHUT_WR)
            while chunk := s.recv(65536): answer += chunk
        except OSError as e: answer += repr(e).encode()
        return answer.decode("latin-1")
def status(data): return proxy(data)[9:12]
"""


class World(Case):
    @classmethod
    def setUpClass(cls):
        for needed in ("/proc/net/if_inet6", "/etc/resolv.conf", "/etc/hosts"):
            if not Path(needed).exists():
                raise unittest.SkipTest(f"this machine has no {needed}")
        cls.place = Path(tempfile.mkdtemp(prefix="casemate-world-"))
        cls.addClassCleanup(shutil.rmtree, cls.place, ignore_errors=True)
        web = cls.place / "web"
        web.mkdir()
        (web / "file.bin").write_bytes(bytes(range(256)) * 4096)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                        "-addext", "subjectAltName=DNS:allowed.test,DNS:*.wild.test,DNS:other.test,IP:" + PUBLIC,
                        "-keyout", cls.place / "key.pem", "-out", cls.place / "cert.pem"],
                       check=True, capture_output=True)
        cls.fill(web)
        cls.world = subprocess.Popen(
            ["unshare", "-n", "-m", sys.executable, str(Path(__file__).with_name("egress_world.py")), str(cls.place)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        cls.addClassCleanup(cls.end, cls.world)
        if cls.world.stdout.readline() != b"ready\n":
            raise RuntimeError("the world of the test did not come about")

    @classmethod
    def fill(cls, web):
        pass

    def inside(self, *words):
        return ["nsenter", "-t", str(self.world.pid), "-n", "-m", "--", *map(str, words)]

    def argv(self, *options, program=None):
        return self.inside(*super().argv(*options, program=program))

    def log(self, name):
        return (self.place / f"{name}.log").read_text().split("\n")

    def run_out(self, program, *options, **how):
        """With allowed.test on the list and its certificate trusted."""
        environment = [f"{name}=cert.pem" for name in
                       ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
                        "NODE_EXTRA_CA_CERTS", "PIP_CERT")]
        return self.run_json(program, "--allow", "allowed.test", "--allow", "allowed.test:5432", "--allow", "*.wild.test",
                             "--file", self.place / "cert.pem",
                             *(word for each in environment for word in ("--env", each)), *options, **how)


@NEEDS_ROOT
class Clients(World):
    """Each as people use it, with the proxy's variables and, where it can do without, without them."""

    @classmethod
    def fill(cls, web):
        simple = web / "simple" / "small"
        simple.mkdir(parents=True)
        # A wheel is a zip file: nothing has to be built for one.
        wheel = simple / "small-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("small.py", "print('small')\n")
            archive.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
            archive.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr("small-1.0.dist-info/RECORD", "")
        (simple / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
        bare = web / "repository.git"
        made = cls.place / "made"
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@allowed.test", "-c", "init.defaultBranch=main"]
        subprocess.run([*git, "init", "-q", made], check=True)
        (made / "README").write_text("cloned\n")
        subprocess.run([*git, "-C", made, "add", "README"], check=True)
        subprocess.run([*git, "-C", made, "commit", "-qm", "one"], check=True)
        subprocess.run([*git, "clone", "-q", "--bare", made, bare], check=True)
        subprocess.run([*git, "-C", bare, "update-server-info"], check=True)

    def reaches(self, program, printed, *options):
        result = self.run_out(program, *options)
        self.assertIn(printed, result.json["stdout"], result)
        self.assertTrue(all(each["decision"] == "allowed" for each in result.json["egress"]), result)
        self.assertTrue(result.json["egress"], result)
        self.assertEqual(result.json["sandbox"]["egress"], "allowlist")
        return result

    def both(self, program, printed):
        self.reaches(program, printed)
        self.reaches(WITHOUT_PROXY + program, printed)

    def test_curl(self):
        self.both(RUN + "run('curl', '-sS', 'https://allowed.test/')", "hello from allowed.test")
        self.both(RUN + "run('curl', '-sS', 'http://allowed.test/')", "hello from allowed.test")

    def test_curl_through_socks(self):
        self.reaches(RUN + "import os\nfor k in ('http_proxy', 'https_proxy', 'HTTPS_PROXY'): del os.environ[k]\n"
                     "run('curl', '-sS', 'https://allowed.test/')", "hello from allowed.test")

    def test_urllib(self):
        self.both("import urllib.request\nprint(urllib.request.urlopen('https://allowed.test/').read())", "hello from allowed.test")
        self.both("import urllib.request\nprint(urllib.request.urlopen('http://allowed.test/', b'abc').read())", "ABC")

    def test_http_client(self):
        self.reaches("import http.client\nc = http.client.HTTPSConnection('allowed.test')\nc.request('GET', '/')\n"
                     "print(c.getresponse().read())", "hello from allowed.test")

    def test_requests(self):
        self.both("import requests\nprint(requests.get('https://allowed.test/').text)", "hello from allowed.test")

    def test_aiohttp(self):
        program = ("import aiohttp, asyncio, ssl\nasync def main():\n"
                   "    async with aiohttp.ClientSession(trust_env={}) as s:\n"
                   "        async with s.get('https://allowed.test/', ssl=ssl.create_default_context(cafile='cert.pem')) as r:\n"
                   "            print(await r.text())\nasyncio.run(main())")
        self.reaches(program.format(False), "hello from allowed.test")
        self.reaches(program.format(True), "hello from allowed.test")

    @unittest.skipUnless(Path("/usr/bin/node").exists(), "there is no Node.js in /usr/bin")
    def test_node_fetch(self):
        self.reaches(RUN + "run('node', '-e', \"fetch('https://allowed.test/').then(r => r.text()).then(console.log)\")",
                     "hello from allowed.test", "--memory", "1G")

    def test_git_over_https(self):
        self.both(RUN + "run('git', 'clone', '-q', 'https://allowed.test/repository.git', 'cloned')\nprint(open('cloned/README').read())",
                  "cloned")

    def test_pip(self):
        program = (ROOT / "examples/egress_download.py").read_text()
        words = ["https://allowed.test/simple/", "small"]
        self.both("import sys\n" + f"sys.argv[1:] = {words}\n" + program, "downloaded small-1.0-py3-none-any.whl")

    def test_a_raw_socket_on_a_listed_port(self):
        words = ["allowed.test", "5432", "select 1"]
        self.reaches(f"import sys\nsys.argv[1:] = {words}\n" + (ROOT / "examples/egress_query.py").read_text(), "SELECT 1")

    def test_names_below_a_wildcard(self):
        for host in ("sub.wild.test", "a.b.wild.test"):
            self.reaches(f"import urllib.request\nprint(urllib.request.urlopen('http://{host}/').read())", "hello from " + host)

    def test_an_address_of_the_list_also_over_ipv6(self):
        self.reaches(WITHOUT_PROXY + f"import urllib.request\nprint(urllib.request.urlopen('http://[{PUBLIC6}]/').read())",
                     f"hello from [{PUBLIC6}]", "--allow", f"[{PUBLIC6}]")
        self.reaches(WITHOUT_PROXY + f"import urllib.request\nprint(urllib.request.urlopen('http://{PRIVATE}/').read())",
                     f"hello from {PRIVATE}", "--allow", PRIVATE)
        self.reaches("import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:8080/').read())",
                     "hello from 127.0.0.1:8080", "--allow", "127.0.0.1:8080")

    def test_much_arrives_whole(self):
        self.reaches("import hashlib, urllib.request\nprint(len(urllib.request.urlopen('https://allowed.test/file.bin').read()))",
                     str(1 << 20))


@NEEDS_ROOT
class Refusals(World):
    def denied(self, program, *words):
        result = self.run_out(program)
        for word in words:
            self.assertIn(word, result.json["stdout"] + result.json["stderr"], result)
        self.assertNotIn("denied.test", self.log("names"))
        self.assertNotIn("hello", result.json["stdout"], result)
        return result

    def test_no_client_reaches_another_name(self):
        for program in (RUN + "run('curl', '-sS', 'https://denied.test/')",
                        "import urllib.request\nprint(urllib.request.urlopen('http://denied.test/').read())",
                        "import requests\nprint(requests.get('https://denied.test/').text)"):
            self.denied(program, "403")
            result = self.denied(WITHOUT_PROXY + program, "denied.test" if "curl" in program else "Name or service not known")
            self.assertEqual([(each["host"], each["port"], each["decision"]) for each in result.json["egress"]],
                             [("denied.test", 0, "denied")], result)

    def test_what_is_refused_says_that_it_is_policy_and_is_on_the_record(self):
        result = self.denied(PROXY + "print(proxy(b'CONNECT denied.test:443 HTTP/1.1\\r\\nHost: denied.test:443\\r\\n\\r\\n'))",
                             "403 Forbidden by the policy of this sandbox", "policy")
        record = result.json["egress"][0]
        self.assertEqual((record["host"], record["port"], record["decision"]), ("denied.test", 443, "denied"))

    def test_a_port_that_is_not_listed_is_refused(self):
        result = self.denied(WITHOUT_PROXY + "import socket\ntry: socket.create_connection(('allowed.test', 8080), 5)\n"
                             "except OSError as e: print(e)", "Connection refused")
        self.assertEqual(result.json["egress"], [])
        self.denied(PROXY + "print(status(b'CONNECT allowed.test:8080 HTTP/1.0\\r\\n\\r\\n'))", "403")

    def test_the_target_is_decided_and_not_the_host_header(self):
        """EG-02"""
        self.denied(PROXY + "print(status(b'CONNECT denied.test:443 HTTP/1.1\\r\\nHost: allowed.test:443\\r\\n\\r\\n'))", "403")

    def test_odd_request_targets_are_malformed_or_decided_by_what_would_be_dialled(self):
        """EG-04"""
        program = PROXY + """
for line, expected in ((b"GET http://denied.test/ HTTP/1.1", 403), (b"GET HTTP://DENIED.test HTTP/1.1", 403),
                       (b"GET //denied.test/ HTTP/1.1", 400), (b"GET http:/denied.test HTTP/1.1", 400),
                       (b"GET http://allowed.test/ http://denied.test/ HTTP/1.1", 400),
                       (b"GET\\thttp://allowed.test/\\tHTTP/1.1", 400), (b"GET http://allowed.test@denied.test/ HTTP/1.1", 400),
                       (b"GET http://allowed.test/\\nX: y HTTP/1.1", 400), (b"GET /" + b"x" * 70000 + b" HTTP/1.1", 400)):
    host = b"denied.test" if expected == 403 else b"allowed.test"
    got = status(line + b"\\r\\nHost: " + host + b"\\r\\n\\r\\n")
    print("ok" if got == str(expected) else (line[:60], got))
"""
        result = self.denied(program)
        self.assertEqual(result.json["stdout"], "ok\n" * 9, result)
        # A second request behind the first, for another host, reaches nobody.
        result = self.run_out(PROXY + "print(proxy(b'GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'"
                              "b'GET http://denied.test/second HTTP/1.1\\r\\nHost: denied.test\\r\\n\\r\\n'))")
        self.assertEqual(result.json["stdout"].count("hello"), 1, result)
        self.assertFalse([line for line in self.log("web") if "second" in line])

    def test_requests_that_could_be_parted_differently_are_malformed(self):
        """EG-06"""
        program = PROXY + """
hidden = b"GET http://denied.test/hidden HTTP/1.1\\r\\nHost: denied.test\\r\\n\\r\\n"
for fields in (b"Content-Length: 5\\r\\nTransfer-Encoding: chunked", b"Content-Length: 5\\r\\nContent-Length: 6",
               b"Transfer-Encoding: xchunked", b"Content-Length: +5"):
    got = status(b"POST http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n" + fields + b"\\r\\n\\r\\n0\\r\\n\\r\\n" + hidden)
    print("ok" if got == "400" else (fields, got))
"""
        result = self.denied(program)
        self.assertEqual(result.json["stdout"], "ok\n" * 4, result)
        self.assertFalse([line for line in self.log("web") if "hidden" in line])

    def test_names_beyond_ascii_are_malformed(self):
        """EG-12"""
        program = PROXY + """
for host in ("127\\u30020\\u30020\\u30021:80", "allowed\\uff0etest.evil.test:443", "\\u2460\\u2461\\u2466.0.0.1:80"):
    print(status(f"CONNECT {host} HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n".encode()))
"""
        self.assertEqual(self.denied(program).json["stdout"], "400\n" * 3)

    def test_a_name_never_leads_to_an_inner_address(self):
        """EG-16"""
        program = PROXY + """
import urllib.request
for host in ("private.test", "loopback.test", "metadata.test"):
    print(status(f"CONNECT {host}:80 HTTP/1.0\\r\\n\\r\\n".encode()))
print(status(b"GET http://private.test/ HTTP/1.1\\r\\nHost: private.test\\r\\n\\r\\n"))
s = socket.create_connection(("private.test", 80)); s.settimeout(20)
try: s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n"); print("came:", s.recv(99))
except OSError as e: print("reset")
"""
        result = self.run_out(program, "--allow", "private.test", "--allow", "loopback.test", "--allow", "metadata.test")
        self.assertEqual(result.json["stdout"], "403\n" * 4 + "reset\n", result)
        self.assertFalse([line for line in self.log("web") if line.startswith(PRIVATE)])
        # Of a mixed answer the public address is taken.
        result = self.run_out("import urllib.request\nprint(urllib.request.urlopen('http://mixed.test/').read())", "--allow", "mixed.test")
        self.assertIn("hello from mixed.test", result.json["stdout"], result)

    def test_there_is_no_way_past_the_doors(self):
        """EG-18"""
        program = WITHOUT_PROXY + f"""
import socket
for fam, a in ((socket.AF_INET, ("{PUBLIC}", 80)), (socket.AF_INET, ("169.254.169.254", 80)),
               (socket.AF_INET, ("127.0.0.1", 22)), (socket.AF_INET, ("127.0.0.1", 8088)), (socket.AF_INET, ("{PUBLIC}", 8088)),
               (socket.AF_INET6, ("{PUBLIC6}", 80)), (socket.AF_INET6, ("::1", 22))):
    s = socket.socket(fam); s.settimeout(2)
    try: s.connect(a); print("OPEN", a)
    except OSError as e: print("closed", e.errno)
for fam, a in ((socket.AF_INET, ("{PUBLIC}", 53)), (socket.AF_INET6, ("{PUBLIC6}", 53))):
    s = socket.socket(fam, socket.SOCK_DGRAM)
    try: s.sendto(b"x", a); print("SENT", a)
    except OSError as e: print("closed", e.errno)
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
    try: socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP); print("ICMP", kind)
    except OSError as e: print("closed", e.errno)
print(sorted(name for _, name in socket.if_nameindex()))
"""
        result = self.run_out(program)
        self.assertNotRegex(result.json["stdout"], "OPEN|SENT|ICMP", result)
        self.assertEqual(result.json["stdout"].count("closed"), 11, result)
        self.assertTrue(result.json["stdout"].endswith("['lo']\n"), result)

    def test_a_relay_inside_changes_nothing(self):
        """EG-20"""
        program = PROXY + """
import threading
real = os.environ["HTTP_PROXY"][len("http://"):].split(":")
listener = socket.create_server(("127.0.0.1", 9999))
def pump(a, b):
    while chunk := a.recv(65536): b.sendall(chunk)
    b.shutdown(socket.SHUT_WR)
def relay():
    while True:
        client, _ = listener.accept()
        server = socket.create_connection((real[0], int(real[1])))
        for ends in ((client, server), (server, client)): threading.Thread(target=pump, args=ends, daemon=True).start()
threading.Thread(target=relay, daemon=True).start()
os.environ["HTTP_PROXY"] = "http://127.0.0.1:9999"
print(status(b"CONNECT allowed.test:443 HTTP/1.0\\r\\n\\r\\n"), status(b"CONNECT denied.test:443 HTTP/1.0\\r\\n\\r\\n"))
"""
        self.denied(program, "200 403")

    def test_the_socket_of_the_host_itself_gains_nothing(self):
        program = """
import socket, struct
def ask(host, port):
    s = socket.socket(socket.AF_UNIX); s.connect("/casemate/call/egress.sock")
    body = struct.pack("<BBHB", 1, 0, port, len(host)) + host
    s.sendall(struct.pack("<H", len(body)) + body)
    return s.recv(3)[2]
print([ask(*each) for each in ((b"denied.test", 443), (b"allowed.test", 8080), (b"127.0.0.1", 8080), (b"allowed.test", 443))])
"""
        result = self.run_out(program)
        self.assertEqual(result.json["stdout"], "[1, 1, 1, 0]\n", result)

    def test_a_server_name_that_is_not_the_tunnels_is_cut_off(self):
        program = (WITHOUT_PROXY + "import socket, ssl\ncontext = ssl.create_default_context(cafile='cert.pem')\n"
                   "s = socket.create_connection(('allowed.test', 443))\n"
                   "try: print('open', context.wrap_socket(s, server_hostname='other.test').version())\n"
                   "except OSError as e: print('cut')\n")
        self.assertEqual(self.run_out(program).json["stdout"], "cut\n")
        self.assertRegex(self.run_out(program, "--no-sni-check").json["stdout"], "^open TLS")

    def test_slow_and_many_clients_are_bounded_and_leave_nothing(self):
        """EG-26"""
        program = PROXY + """
import resource
host, port = os.environ["HTTP_PROXY"][len("http://"):].split(":")
held = []
for i in range(900):
    s = socket.create_connection((host, int(port)), 20)
    s.sendall(b"C" if i % 2 else b"CONNECT allowed.test:80 HTTP/1.0\\r\\n\\r\\n" if i < 100 else b"\\x05")
    held.append(s)
print(status(b"X" * 10_000_000))
print(proxy(b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n")[-23:])
"""
        result = self.run_out(program)
        self.assertEqual(result.status, 0, result)
        self.assertIn("hello from allowed.test", result.json["stdout"], result)

    def test_a_connection_that_breaks_off_is_reset_and_one_that_ends_is_not(self):
        program = """
import os, socket
def hear(port, proxied):
    s = socket.create_connection(("127.0.0.1", int(os.environ["HTTP_PROXY"].rsplit(":", 1)[1])) if proxied else ("allowed.test", port))
    if proxied:
        s.sendall(f"CONNECT allowed.test:{port} HTTP/1.0\\r\\n\\r\\n".encode())
        s.recv(100)
    s.sendall(b"all\\n")
    if port == 5432: s.shutdown(socket.SHUT_WR)
    heard = b""
    try:
        while got := s.recv(100): heard += got
        print(heard, "and the end")
    except ConnectionResetError: print(heard, "and no more")
for proxied in (False, True): hear(5433, proxied), hear(5432, proxied)
"""
        result = self.run_out(program, "--allow", "allowed.test:5433")
        self.assertEqual(result.json["stdout"], "b'a part of all\\n' and no more\nb'ALL\\n' and the end\n" * 2, result)

    def test_a_programs_own_server_stands_in_the_way_of_no_other_port(self):
        program = WITHOUT_PROXY + """
import socket, urllib.request
own = socket.create_server(("0.0.0.0", 443))
for turn in range(200): socket.gethostbyname("allowed.test")
print(urllib.request.urlopen("http://allowed.test/").read())
"""
        result = self.run_out(program)
        self.assertEqual(result.json["stdout"], "b'hello from allowed.test'\n", result)

    def test_the_doors_count_as_their_call_and_stay_within_its_limits(self):
        program = self.write("waits.py", "import sys, urllib.request\nurllib.request.urlopen('http://allowed.test/').read()\n"
                             "print('there', flush=True)\nsys.stdin.read()\n")
        argv = self.inside(PROGRAM, "run", "--stdin", "--allow", "allowed.test", "--env", "CASEMATE_TEST_MARK=" + self.id(), program)
        running = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment())
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.communicate)
        self.assertEqual(running.stdout.readline(), b"there\n")
        groups, doors = None, []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                # What bounds and counts, of either version of control groups.
                of = sorted(line.split(":", 1)[1] for line in (process / "cgroup").read_text().splitlines()
                            if any(name in line for name in ("memory", "cpu", "pids", "::")))
                if (process / "comm").read_text() == "casemate-doors\n":
                    doors.append(of)
                elif f"CASEMATE_TEST_MARK={self.id()}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    groups = of
            except OSError:
                continue  # it has ended
        self.assertIsNotNone(groups)
        self.assertIn(groups, doors)

    def test_a_thousand_tunnels_are_open_at_once_within_the_calls_memory(self):
        program = WITHOUT_PROXY + """
import resource, socket
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = [socket.create_connection(("allowed.test", 5432), 60) for _ in range(1000)]
for n, s in enumerate(held): s.sendall(b"line %d\\n" % n)
print(sum(s.makefile("rb").readline() == b"LINE %d\\n" % n for n, s in enumerate(held)))
"""
        result = self.run_out(program, "--memory", "128M")
        self.assertEqual(result.json["stdout"], "1000\n", result)
        print(f"1,000 tunnels: {result.json['peak_memory_bytes'] >> 20} MiB of memory in the sandbox, the program's among it")

    def test_each_call_has_a_network_of_its_own(self):
        # SO_NETNS_COOKIE: the kernel gives a cookie once, the number of a namespace again and again.
        program = "import socket; print(socket.socket().getsockopt(socket.SOL_SOCKET, 71, 8).hex())"
        first, second = (self.run_out(program, "--thread", "t", "--keep") for _ in range(2))
        self.assertTrue(second.json["sandbox"]["reused"], second)
        self.assertRegex(first.json["stdout"], r"^[0-9a-f]{16}\n$", first)
        self.assertNotEqual(first.json["stdout"], second.json["stdout"])
        # Another list is another sandbox; `exec` has the list that it was made with.
        third = self.run_json(program, "--thread", "t", "--keep", "--allow", "other.test")
        self.assertFalse(third.json["sandbox"]["reused"], third)
        reached = self.run_argv(self.inside(PROGRAM, "exec", "--scope", "cli", "--thread", "t", "--",
                                            "curl", "-sS", "http://other.test/"))
        self.assertEqual(reached.text, "hello from other.test", reached)
        self.run_argv(self.inside(PROGRAM, "rm", "--scope", "cli"))

    def test_the_doors_are_out_of_a_programs_reach(self):
        program = """
import os, signal
print([name for name in os.listdir("/proc") if name.isdigit()], os.getpid())
for act in (lambda: os.kill(-1, signal.SIGKILL), lambda: os.remove("/casemate/call/egress.sock"),
            lambda: os.rename("/casemate/call/egress.sock", "/casemate/call/x"), lambda: open("/casemate/call/y", "w")):
    try: act(); print("done")
    except OSError as e: print("refused", e.errno)
import urllib.request; print(urllib.request.urlopen("http://allowed.test/").read())
"""
        result = self.run_out(program)
        self.assertRegex(result.json["stdout"], r"^\['1', '2'\] 2\n(refused \d+\n){4}b'hello from allowed.test'\n$", result)


class WithoutAWorld(Case):
    def test_odd_entries_are_refused_at_the_start(self):
        """EG-10"""
        for entry in ("www*.test", "*", "*.", "*.com", "", " example.test", "http://example.test/x", "example.test/",
                      ".example.test", "a..b", "exa_mple.test", "*.*.test", "a.test:0", "a.test:65536", "a.test:", "10.0.0.0/8", "com",
                      "127.0.0.1:53", "[::1]:53", "[::ffff:192.0.2.7]", "[fe80::1]", "[ff02::1]", "224.0.0.1", "255.255.255.255"):
            result = self.run_program("print(1)", "--allow", entry)
            self.assertRefused(result, "InvalidArgument", entry)
        self.assertNothingStarted()

    def test_the_hosts_proxy_is_nobodys_business(self):
        """EG-22"""
        proxies = {name: "http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
        proxies["ALL_PROXY"] = "socks5://127.0.0.1:9"
        result = self.run_json("import os\nprint(sorted(k for k in os.environ if 'proxy' in k.lower()))", env=proxies)
        self.assertEqual((result.status, result.json["stdout"]), (0, "[]\n"), result)
        result = self.run_json("import os\nprint(os.environ['HTTP_PROXY'])", "--allow", "allowed.test", env=proxies)
        self.assertEqual(result.status, 0, result)
        self.assertNotIn(":9\n", result.json["stdout"])

    def test_the_variables_of_the_proxy_are_set_in_every_spelling(self):
        result = self.run_json("import os\nprint({k: v for k, v in os.environ.items() if 'proxy' in k.lower()})", "--allow", "a.test")
        found = eval(result.json["stdout"])  # what our own program printed
        address = found["HTTP_PROXY"].removeprefix("http://")
        self.assertRegex(address, r"^127\.0\.0\.1:\d+$")
        expected = {"HTTP_PROXY": "http://" + address, "HTTPS_PROXY": "http://" + address, "ALL_PROXY": "socks5h://" + address,
                    "NO_PROXY": "localhost,127.0.0.1,::1"}
        expected.update({name.lower(): value for name, value in list(expected.items())})
        self.assertEqual(found, expected)

    def test_the_doors_are_none_of_the_processes_that_a_call_may_have(self):
        program = """
import subprocess
held = []
try:
    while len(held) < 20: held.append(subprocess.Popen(["sleep", "60"]))
except OSError: pass
print(len(held))
"""
        closed, listed = (self.run_json(program, "--pids", "8", *more).json["stdout"] for more in ([], ["--allow", "a.test"]))
        self.assertRegex(closed, r"^[1-7]\n$")
        self.assertEqual(listed, closed)

    def test_a_listed_address_is_reached_even_when_it_is_loopback(self):
        """By any user, without a name server: what the operator wrote is meant."""
        import http.server
        import threading
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        server.RequestHandlerClass.log_message = lambda *words: None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        program = f"import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:{port}/').status)"
        result = self.run_json(program, "--allow", f"127.0.0.1:{port}")
        self.assertEqual(result.json["stdout"], "200\n", result)
        self.assertEqual(result.json["egress"][0]["decision"], "allowed", result)
        result = self.run_json(program)
        self.assertNotEqual(result.status, 0, result)

    def test_no_entry_that_is_accepted_keeps_a_call_from_starting(self):
        """One of each class of addresses and of odd names; the proxy's own port among them."""
        entries = ["0.0.0.0", "0.1.2.3", "10.0.0.1:53", "100.64.0.1", "127.0.0.1", "127.0.0.1:3128", "127.0.0.2:53", "127.255.255.255",
                   "169.254.169.254", "172.16.0.1", "192.0.0.1", "192.0.2.7:65535", "192.168.0.1", "198.18.0.1:53", "198.18.0.2",
                   "198.19.255.255", "203.0.113.7", "240.0.0.1", "255.255.255.254", "8.8.8.8:53", "[::]", "[::1]", "[::1]:3128",
                   "[::7f00:1]", "[64:ff9b::7f00:1]", "[100::1]", "[2001::1]", "[2001:db8::7]", "[2002:7f00:1::]", "[fc00::1]",
                   "[fd00:ec2::254]", "[fec0::1]", "[2001:db8::7]:53", "intranet", "intranet:53", "*.intranet.test:53",
                   "xn--bcher-kva.example", "a.b.c.d.e.f.test"]
        result = self.run_json("print(1)", *(word for entry in entries for word in ("--allow", entry)))
        self.assertEqual((result.status, result.json["stdout"]), (0, "1\n"), result)
        for entry in entries:
            result = self.run_program("print(1)", "--check", "--allow", entry)
            self.assertEqual(result.status, 0, result)

    @unittest.skipUnless(Path("/usr/lib/python3/dist-packages/httpx").exists(), "there is no python3-httpx")
    def test_a_variable_of_the_proxy_that_a_client_cannot_read_may_be_emptied(self):
        """httpx knows no `socks5h` without another package; HTTP and the transparent door serve it."""
        program = "import httpx\ntry: httpx.Client(); print('usable')\nexcept Exception as e: print('unusable')"
        self.assertEqual(self.run_json(program, "--allow", "a.test").json["stdout"], "unusable\n", "the advice is outdated")
        result = self.run_json(program, "--allow", "a.test", "--env", "ALL_PROXY=", "--env", "all_proxy=")
        self.assertEqual(result.json["stdout"], "usable\n", result)
        result = self.run_json(program.replace("Client()", "Client(trust_env=False)"), "--allow", "a.test")
        self.assertEqual(result.json["stdout"], "usable\n", result)

    def test_the_list_may_stand_in_the_configuration(self):
        config = self.write("casemate.toml", '[run]\nallow = ["a.test", "*.example.org:8443"]\nno-sni-check = true\n')
        result = self.run_json("print(1)", "--config", config)
        self.assertEqual((result.status, result.json["sandbox"]["egress"]), (0, "allowlist"), result)
        config = self.write("casemate.toml", '[run]\nallow = ["*"]\n')
        self.assertRefused(self.run_program("print(1)", "--config", config), "ConfigInvalid", "casemate.toml:2", "'*'")

    def test_no_list_no_network(self):
        result = self.run_json("import socket\ntry: socket.getaddrinfo('allowed.test', 80)\nexcept OSError as e: print(e)")
        self.assertEqual((result.json["sandbox"]["egress"], result.json["egress"]), ("closed", []), result)
        self.assertIn("[Errno", result.json["stdout"])


if __name__ == "__main__":
    unittest.main()
