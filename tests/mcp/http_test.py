"""`casemate mcp --http` as a program: many clients at once, clients that are killed, hostile ones."""

import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from mcp_clients import BUILD, PATIENCE, served
from mcp_schemas import STATELESS, check_message

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
JSON_AND_EVENTS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def call_body(code, identity=1, meta=META, **more):
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": "tools/call",
                       "params": {"name": "execute_code", "arguments": {"code": code, **more}, "_meta": meta}})


CALL_HEAD = {**JSON_AND_EVENTS, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
             "Mcp-Name": "execute_code"}


def connect(url):
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)


def post(url, body, head):
    """(status, head, message): of an event stream its last message. Each is held against its schema."""
    connection = connect(url)
    connection.request("POST", "/mcp", body, head)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.getheader("Content-Type") == "text/event-stream":
        texts = re.findall(r"^data: (.+)$", text, re.M)
    else:
        texts = [text] if text else []
    messages = [json.loads(each) for each in texts]
    for message in messages:
        check_message(head.get("MCP-Protocol-Version", "2025-11-25"), method_of(body), message)
    return answer.status, answer.headers, messages[-1] if messages else None


def method_of(body):
    try:
        return json.loads(body).get("method")
    except (ValueError, RecursionError):
        return None


def discover(url):
    return post(url, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}),
                {**JSON_AND_EVENTS, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"})[0]


def resident_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def state_of(pid):
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": len(os.listdir(f"/proc/{pid}/task"))}


def wait_until(holds, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"did not come: {what}")
        time.sleep(0.01)


def processes_with(word):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def sleeper(number):
    return f'import subprocess\nsubprocess.run(["sleep", "{number}"])'


class McpOverHttp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (BUILD / "casemate").is_file():
            raise unittest.SkipTest("this build has no casemate")

    def serve(self, *options):
        return served(["casemate", "mcp"], "--min-isolation", "container", *options)

    def marker(self):
        return f"8{os.getpid()}.{time.monotonic_ns()}"

    def test_two_hundred_calls_by_twenty_at_once_get_each_their_own_answer_and_leave_nothing(self):
        with self.serve() as (url, server):
            def ask(number):
                status, _, message = post(url, call_body(f"print({number} * 7)", number), CALL_HEAD)
                return status, message["id"], message["result"]["structuredContent"]["stdout"]

            with ThreadPoolExecutor(20) as clients:
                # What is made once, is made: as many threads as may run calls, for one.
                bodies = [call_body("import time\ntime.sleep(0.5)")] * 40
                list(clients.map(lambda body: post(url, body, CALL_HEAD), bodies))
                wait_until(lambda: state_of(server.pid)["descriptors"] < 64, "descriptors go")
                before, memory = state_of(server.pid), resident_kib(server.pid)
                answers = list(clients.map(ask, range(200)))
            self.assertEqual(answers, [(200, number, f"{number * 7}\n") for number in range(200)])
            wait_until(lambda: all(state_of(server.pid)[what] <= before[what] for what in before), "all is back")
            after = state_of(server.pid) | {"resident_kib": resident_kib(server.pid)}
            print(f"before {before | {'resident_kib': memory}}, after {after}")
            self.assertLess(after["resident_kib"], memory + 16 * 1024)

    def kill_a_client(self, url, head, meta):
        marker = self.marker()
        body = call_body(sleeper(marker), meta=meta)
        program = ("import http.client, sys\n"
                   f"c = http.client.HTTPConnection({urlsplit(url).netloc!r})\n"
                   f"c.request('POST', '/mcp', {body!r}, {head!r})\n"
                   "c.getresponse().read()\n")
        client = subprocess.Popen([sys.executable, "-c", program])
        try:
            wait_until(lambda: processes_with(marker), "the program runs")
        finally:
            client.send_signal(signal.SIGKILL)
            client.wait()
        wait_until(lambda: not processes_with(marker), "the program has ended")

    def test_killing_a_client_ends_its_program_without_a_session(self):
        with self.serve() as (url, _):
            self.kill_a_client(url, CALL_HEAD, META)

    def test_killing_a_client_ends_its_program_in_a_session(self):
        with self.serve() as (url, _):
            self.kill_a_client(url, self.session(url), {})

    def test_sigterm_ends_what_runs_with_everything_of_it(self):
        marker = self.marker()
        with self.serve() as (url, server):
            asking = threading.Thread(target=lambda: self.ignore_failures(
                lambda: post(url, call_body(sleeper(marker)), CALL_HEAD)))
            asking.start()
            wait_until(lambda: processes_with(marker), "the program runs")
            server.terminate()
            self.assertEqual(server.wait(PATIENCE), 143)
            asking.join()
            wait_until(lambda: not processes_with(marker), "the program has ended")

    @staticmethod
    def ignore_failures(act):
        try:
            act()
        except (OSError, http.client.HTTPException, AttributeError, ValueError):
            pass

    def session(self, url, revision="2025-11-25", **capabilities):
        """The head fields of a new session."""
        status, head, _ = post(url, json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize",
             "params": {"protocolVersion": revision, "capabilities": capabilities,
                        "clientInfo": {"name": "test", "version": "1"}}}), {**JSON_AND_EVENTS, "MCP-Protocol-Version": revision})
        self.assertEqual(status, 200)
        return {**JSON_AND_EVENTS, "Mcp-Session-Id": head["Mcp-Session-Id"], "MCP-Protocol-Version": revision}

    def test_each_message_has_the_form_of_its_revision(self):
        """Both eras, each kind of message: `post` holds them against the schemas."""
        with tempfile.TemporaryDirectory(prefix="casemate-test-") as out, self.serve("--out-dir", out) as (url, _):
            program = "open('a.csv', 'w').write('1,2'); print('up', flush=True)"
            for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", STATELESS]:
                stateless = revision == STATELESS
                head = {**JSON_AND_EVENTS, "MCP-Protocol-Version": revision} if stateless else self.session(url, revision)

                def ask(method, label=None, **params):
                    meta = {**(META if stateless else {}), "progressToken": 7}
                    fields = {"Mcp-Method": method, **({"Mcp-Name": label} if label else {})} if stateless else {}
                    body = {"jsonrpc": "2.0", "id": "a", "method": method, "params": {**params, "_meta": meta}}
                    return post(url, json.dumps(body), {**head, **fields})[2]

                with self.subTest(revision=revision):
                    self.assertEqual(len(ask("tools/list")["result"]["tools"]), 1)
                    ran = ask("tools/call", "execute_code", name="execute_code",
                              arguments={"code": program, "outputs": ["a.csv"]})["result"]
                    uri = re.search(r"casemate://[^\s\"]+", json.dumps(ran))[0].rstrip("\\")
                    read = ask("resources/read", uri, uri=uri)["result"]
                    self.assertEqual(read["contents"][0]["text"], "1,2")
                    ask("resources/list")
                    ask("resources/templates/list")
                    self.assertIn("error", ask("resources/read", "casemate://x", uri="casemate://x"))
                    self.assertIn("error", ask("prompts/list"))
                    refused = ask("tools/call", "execute_code", name="execute_code", arguments={"code": 5})
                    self.assertTrue(refused["result"]["isError"])

    def test_a_client_is_asked_for_approval_in_the_manner_of_its_era(self):
        if not (BUILD / "mcp-everything").is_file():
            self.skipTest("this build has no mcp-everything")
        with served(["mcp-everything"]) as (url, _):
            able = {"elicitation": {}}
            for revision in ("2025-06-18", "2025-11-25"):
                head = self.session(url, revision, **able)
                for action, text in (("accept", "it was approved"), ("decline", "not approved")):
                    with self.subTest(revision=revision, action=action):
                        self.assertIn(text, json.dumps(self.call_and_answer(url, head, revision, action)))
            meta = {**META, "io.modelcontextprotocol/clientCapabilities": able}
            head = {**JSON_AND_EVENTS, "MCP-Protocol-Version": STATELESS, "Mcp-Method": "tools/call", "Mcp-Name": "test_approval"}
            ask = lambda **more: post(url, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {  # noqa: E731
                "name": "test_approval", "_meta": meta, **more}}), head)[2]["result"]
            for action, text in (("accept", "it was approved"), ("decline", "not approved")):
                asked = ask()
                self.assertEqual(asked["inputRequests"]["approval"]["method"], "elicitation/create")
                answered = ask(requestState=asked["requestState"], inputResponses={"approval": {"action": action}})
                self.assertIn(text, json.dumps(answered))

    def call_and_answer(self, url, head, revision, action):
        """Calls, and answers the question that comes on the call's stream. Returns the call's own answer."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "test_approval"}})
        connection = connect(url)
        connection.request("POST", "/mcp", body, head)
        answer = connection.getresponse()
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            message = json.loads(line[6:])
            check_message(revision, "tools/call", message)
            if "result" in message:
                connection.close()
                return message
            self.assertEqual(message["method"], "elicitation/create")
            response = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"action": action}})
            self.assertEqual(post(url, response, head)[0], 202)
        raise AssertionError("the call was not answered")

    def test_memory_is_given_back_after_great_answers(self):
        with tempfile.TemporaryDirectory(prefix="casemate-test-") as out:
            with self.serve("--out-dir", out, "--files-out-limit", "24M,24M,4") as (url, server):
                head = self.session(url)
                program = "import os; open('a.bin', 'wb').write(os.urandom(20_000_000)); print('x' * 200_000)"
                ask = lambda method, **params: post(url, json.dumps(  # noqa: E731
                    {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}), head)[2]["result"]
                for _ in range(3):
                    ran = ask("tools/call", name="execute_code", arguments={"code": program, "outputs": ["a.bin"]})
                    uri = next(part["uri"] for part in ran["content"] if part["type"] == "resource_link")
                    self.assertGreater(len(ask("resources/read", uri=uri)["contents"][0]["blob"]), 26_000_000)
                    next(Path(out).rglob("a.bin")).unlink()
                wait_until(lambda: resident_kib(server.pid) < 48 * 1024, "memory is given back")
                print(f"resident after answers of 27 MB: {resident_kib(server.pid)} KiB")

    def test_a_client_that_reads_nothing_bounds_what_is_held_for_it(self):
        with tempfile.TemporaryDirectory(prefix="casemate-test-") as out:
            with self.serve("--out-dir", out, "--files-out-limit", "24M,24M,4") as (url, server):
                head = self.session(url)
                ran = post(url, call_body("open('a.bin', 'wb').write(bytes(20_000_000))", 2, {}, outputs=["a.bin"]), head)[2]
                uri = next(part["uri"] for part in ran["result"]["content"] if part["type"] == "resource_link")
                body = json.dumps({"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": {"uri": uri}}).encode()
                fields = "".join(f"{name}: {value}\r\n" for name, value in head.items())
                request = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body
                silent = []
                for _ in range(16):
                    client = socket.socket()
                    client.settimeout(PATIENCE)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    client.connect((urlsplit(url).hostname, urlsplit(url).port))
                    client.sendall(request)
                    self.assertTrue(client.recv(1))  # its answer was made
                    silent.append(client)
                peak = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[1])
                print(f"16 answers of 27 MB that nobody reads: at most {peak} KiB resident")
                self.assertLess(peak, 400 * 1024)
                self.assertEqual(post(url, body.decode(), head)[0], 200)
                for client in silent:
                    client.close()

    def test_without_its_token_nobody_is_served(self):
        with tempfile.TemporaryDirectory(prefix="casemate-test-") as directory:
            tokens = Path(directory) / "tokens"
            tokens.write_text("0123456789abcdefghijklmnop\n")
            with self.serve("--token-file", tokens) as (url, _):
                self.assertEqual(discover(url), 401)
                status, _, _ = post(url, call_body("print(1)"),
                                    {**CALL_HEAD, "Authorization": "Bearer 0123456789abcdefghijklmnop"})
                self.assertEqual(status, 200)

    def test_an_address_that_others_reach_needs_a_token_file(self):
        run = subprocess.run([BUILD / "casemate", "mcp", "--min-isolation", "container", "--http", "0.0.0.0:0"],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(run.returncode, 125)
        self.assertIn("bearer tokens", run.stderr)

    def test_hostile_clients_are_refused_and_the_server_stays_up_and_small(self):
        with self.serve() as (url, server):
            place = (urlsplit(url).hostname, urlsplit(url).port)
            self.assertEqual(discover(url), 200)
            memory = resident_kib(server.pid)
            self.assertEqual(post(url, call_body("print(1)"), {**CALL_HEAD, "Origin": "http://evil.example"})[0], 403)
            self.assertEqual(post(url, call_body("print(1)"), {**CALL_HEAD, "Host": "evil.example"})[0], 403)
            self.assertEqual(post(url, "{}", {**JSON_AND_EVENTS, "Mcp-Session-Id": "0" * 64})[0], 404)
            self.assertEqual(post(url, "[" * 100_000, CALL_HEAD)[0], 400)
            self.assertEqual(post(url, '{"jsonrpc":"2.0","id":"' + "x" * 1_000_000 + '","method":"ping"}',
                                  CALL_HEAD)[0], 400)

            # Heads that never end, bodies that never come, noise: more than there are places for.
            rng = random.Random(7)
            held = []
            for number in range(400):
                client = socket.create_connection(place, timeout=PATIENCE)
                held.append(client)
                self.ignore_failures(lambda: client.sendall(
                    (b"POST /mcp HTTP/1.1\r\nX-Slow: ", rng.randbytes(1000), b"",
                     b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 8000000\r\n\r\n{")[number % 4]))
            # Whatever a place was taken by goes: a server that is full says so until then.
            wait_until(lambda: self.is_served(url), "there is a place again")
            self.assertLess(resident_kib(server.pid), memory + 64 * 1024)
            for client in held:
                client.close()

            # Much more than a body may have, sent as fast as it is taken.
            client = socket.create_connection(place, timeout=PATIENCE)
            client.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           b"Accept: */*\r\nTransfer-Encoding: chunked\r\n\r\n")
            piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
            self.ignore_failures(lambda: [client.sendall(piece) for _ in range(64)])
            client.close()
            wait_until(lambda: self.is_served(url), "the server is up")
            self.assertLess(resident_kib(server.pid), memory + 64 * 1024)
            wait_until(lambda: state_of(server.pid)["descriptors"] < 64, "the connections are closed")

    def is_served(self, url):
        try:
            return discover(url) == 200
        except (OSError, http.client.HTTPException):
            return False


if __name__ == "__main__":
    unittest.main()
