"""A client of `casemate mcp` over standard input and output, for tests: every line that the server
sends is held against the published schema of its revision."""

import json
import sys
import threading
import time
from pathlib import Path

from harness import PATIENCE, PROGRAM, Case

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mcp"))
from mcp_schemas import HANDSHAKE, STATELESS, check_message  # noqa: E402

META = {"io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}}


class Client:
    """One server process. Messages are read by a thread, so that the server never waits for us."""

    def __init__(self, case, *options, reads=True, stderr=None, env=None):
        self.case, self.revision, self.methods = case, None, {}
        self.next_id = 1000  # above those that tests choose
        self.process = case.start([str(PROGRAM), "mcp", *map(str, options)], stdin=-1, stdout=-1,
                                  **({"stderr": stderr} if stderr is not None else {}), env=env)
        self.lines, self.ended, self.changed = [], False, threading.Condition()
        if reads:
            self.reader = threading.Thread(target=self.read, daemon=True)
            self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def send_bytes(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        for one in message if isinstance(message, list) else [message]:
            if isinstance(one, dict) and "id" in one and "method" in one:
                stateless = META.keys() & one.get("params", {}).get("_meta", {}).keys()
                self.methods[json.dumps(one["id"])] = (one["method"], STATELESS if stateless else None)
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def wait_for(self, found, seconds=PATIENCE):
        """The first message (from anywhere in the stream) for which `found` is true."""
        until = time.monotonic() + seconds
        with self.changed:
            seen = 0
            while True:
                for line in self.lines[seen:]:
                    seen += 1
                    message = self.checked(line)
                    if found(message):
                        return message
                if self.ended or not self.changed.wait(max(0, until - time.monotonic())):
                    raise AssertionError(f"no such message; {self.lines[-5:]}")

    def checked(self, line):
        assert line.endswith(b"\n") and line.count(b"\n") == 1, line[:200]
        message = json.loads(line.decode("utf-8"))
        for one in message if isinstance(message, list) else [message]:
            self.hold_against_the_schema(one)
        return message

    def hold_against_the_schema(self, message):
        method, stateless = self.methods.get(json.dumps(message.get("id")), (None, None))
        revision = stateless or self.revision
        if revision is not None:
            check_message(revision, method, message)

    def request(self, method, params=None, request_id=None, seconds=PATIENCE):
        self.next_id += 1
        request_id = self.next_id if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        before = len(self.lines)
        self.send(message)
        until = time.monotonic() + seconds
        with self.changed:
            seen = before
            while True:
                for line in self.lines[seen:]:
                    seen += 1
                    answer = self.checked(line)
                    if isinstance(answer, dict) and answer.get("id") == request_id and type(answer["id"]) is type(request_id):
                        return answer
                if self.ended or not self.changed.wait(max(0, until - time.monotonic())):
                    raise AssertionError(f"no answer to {method}; {self.lines[-5:]}")

    def stateless(self, method, params=None, seconds=PATIENCE, **meta):
        return self.request(method, {**(params or {}), "_meta": {**META, **meta}}, seconds=seconds)

    def notify(self, method, params=None):
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def initialize(self, revision="2025-11-25"):
        self.revision = revision
        answer = self.request("initialize", {"protocolVersion": revision, "capabilities": {},
                                             "clientInfo": {"name": "test", "version": "1"}})
        self.notify("notifications/initialized")
        return answer

    def call(self, code, token=None, seconds=PATIENCE, **arguments):
        params = {"name": "execute_code", "arguments": {"code": code, **arguments}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return self.request("tools/call", params, seconds=seconds)["result"]

    def start_call(self, code, request_id, token=None):
        params = {"name": "execute_code", "arguments": {"code": code}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        self.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    def close_input(self):
        self.process.stdin.close()

    def wait(self, seconds=PATIENCE):
        return self.process.wait(timeout=seconds)

    def memory(self):
        """Resident bytes of the server."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the server has ended")


class McpCase(Case):
    def client(self, *options, **how):
        return Client(self, *options, **how)

    def initialised(self, *options, revision="2025-11-25", **how):
        client = self.client(*options, **how)
        client.initialize(revision)
        return client

    def assertError(self, answer, code):
        self.assertEqual(answer.get("error", {}).get("code"), code, answer)

    def text(self, result):
        return result["content"][0]["text"]


__all__ = ["Client", "HANDSHAKE", "META", "McpCase", "STATELESS"]
