"""MCP over standard input and output, on the real program: the protocol's cases."""

import base64
import fcntl
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import NAMESPACE, PATIENCE, PRINT_NAMESPACE, PROGRAM, ROOT, SANITIZED, processes_in  # noqa: E402
from mcp_client import HANDSHAKE, STATELESS, McpCase  # noqa: E402
from mcp_schemas import check  # noqa: E402

PING = {"jsonrpc": "2.0", "id": "ping", "method": "ping"}
# Prints its namespace and then runs until somebody stops it.
FOREVER = PRINT_NAMESPACE + "import time\nwhile True: time.sleep(3600)"


class Schema(unittest.TestCase):
    def test_messages_are_held_against_the_published_schemas(self):
        check("2025-11-25", "EmptyResult", {})
        with self.assertRaises(AssertionError):
            check(STATELESS, "ListToolsResult", {"tools": []})


class Telling(McpCase):
    """Programs tell the test where they run, by a host tool: their output comes at their end only."""

    def telling(self, *options, **how):
        return self.initialised("--host-tool", f"tell=tee {self.dir}/told", *options, **how)

    def start_forever(self, client, request_id):
        """Returns the namespace of a program that runs until somebody stops it."""
        told = self.dir / "told"
        told.unlink(missing_ok=True)
        client.start_call("import casemate_tools, os\ncasemate_tools.call('tell', ns=" + NAMESPACE + ")\n"
                          "print('up', flush=True)\nwhile True: pass", request_id, token=f"run {request_id}")
        client.wait_for(lambda message: message.get("params", {}).get("progressToken") == f"run {request_id}"
                        and "printed" in message["params"].get("message", ""))
        return json.loads(told.read_text())["ns"]


class Lines(McpCase):
    def test_no_line_ends_the_server(self):
        """MCP-02"""
        client = self.initialised()
        bad = [b"\xff\xfe", b"NOT JSON", b"{", b"\xef\xbb\xbf{}", b"[" * 200_000, b"[]", b"5", b"null",
               b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"\xff"}}}',
               b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
               b'{"jsonrpc":"2.0","id":"' + b"x" * 5000 + b'","method":"ping"}',
               b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', b'{"jsonrpc":"2.0","id":null,"method":"ping"}']
        for line in bad:
            with self.subTest(line=line[:60]):
                before = len(client.lines)
                client.send_bytes(line + b"\n")
                answer = self.next_message(client, before)
                self.assertIn(answer["error"]["code"], (-32700, -32600))
                self.assertIsNone(answer.get("id"))
        before = len(client.lines)
        client.send_bytes(b"\n   \n\r\n" + json.dumps(PING).encode() + b"\r\n")
        self.assertEqual(self.next_message(client, before), {"jsonrpc": "2.0", "id": "ping", "result": {}})

    def next_message(self, client, before):
        with client.changed:
            self.assertTrue(client.changed.wait_for(lambda: len(client.lines) > before, 30))
            return client.checked(client.lines[before])

    def test_random_bytes_get_refusals_and_the_next_message_is_served(self):
        client = self.initialised()
        noise = b"".join(hashlib.sha512(b"%d" % at).digest() for at in range(20_000))
        client.send_bytes(noise + b"\n")
        self.assertEqual(client.request("ping", request_id="after")["result"], {})

    def test_an_error_without_an_id_is_jsonrpcs_where_no_revision_is_agreed_on(self):
        client = self.client()
        client.send_bytes(b"NOT JSON\n")
        answer = client.wait_for(lambda message: True)
        self.assertEqual((answer["id"], answer["error"]["code"]), (None, -32700))

    def test_a_line_may_be_long_and_come_in_any_pieces(self):
        """MCP-12"""
        client = self.initialised()
        for size in (70_000, 1_000_000):
            for piece in (1, 65_536):
                if piece == 1 and size > 70_000:
                    continue  # a million writes say no more than seventy thousand
                code = "print('whole')\n" + "#" * size
                line = json.dumps({"jsonrpc": "2.0", "id": f"{size}/{piece}", "method": "tools/call",
                                   "params": {"name": "execute_code", "arguments": {"code": code}}}).encode() + b"\n"
                fd = client.process.stdin.fileno()
                for at in range(0, len(line), piece):
                    os.write(fd, line[at:at + piece])
                answer = client.wait_for(lambda message: message.get("id") == f"{size}/{piece}", 60)
                self.assertIn("whole", self.text(answer["result"]))

    def test_a_line_over_the_bound_is_refused_without_being_kept(self):
        """MCP-12"""
        client = self.initialised()
        client.request("ping")
        before = client.memory()
        piece = b"#" * 1_000_000
        client.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"')
        for _ in range(1000):  # one gigabyte
            client.send_bytes(piece)
        client.send_bytes(b'"}}\n')
        answer = client.wait_for(lambda message: "error" in message)
        self.assertEqual(answer["error"]["code"], -32600)
        self.assertIn("bytes", answer["error"]["message"])
        self.assertEqual(client.request("ping")["result"], {})
        if not SANITIZED:
            self.assertLess(client.memory() - before, 40_000_000)

    def test_a_large_result_reaches_a_client_that_reads_slowly(self):
        """MCP-12"""
        client = self.client(reads=False)
        client.methods, client.revision = {}, "2025-11-25"
        for message in ({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
                        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
                            "name": "execute_code", "arguments": {"code": "print('x' * 300_000)"}}}):
            client.send(message)
        data = b""
        fd = client.process.stdout.fileno()
        while data.count(b"\n") < 2:
            piece = os.read(fd, 1024)
            self.assertTrue(piece, data[-200:])
            data += piece
        result = json.loads(data.split(b"\n")[1])["result"]
        self.assertGreater(len(self.text(result)), 256 * 1024 - 1000)
        self.assertGreater(result["structuredContent"]["stdout_truncated_bytes"], 0)


class Handshake(McpCase):
    def test_the_revision_is_one_that_both_know_or_the_newest(self):
        """MCP-04"""
        for asked in [*HANDSHAKE, "2099-01-01", "banana", None, 5]:
            with self.subTest(asked=asked):
                client = self.client()
                agreed = asked if asked in HANDSHAKE else "2025-11-25"
                client.revision = agreed
                params = {"capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
                if asked is not None:
                    params["protocolVersion"] = asked
                result = client.request("initialize", params)["result"]
                self.assertEqual(result["protocolVersion"], agreed)
                called = client.call("print(1)")
                self.assertEqual("structuredContent" in called, agreed >= "2025-06-18")
                tools = client.request("tools/list", {})["result"]["tools"]
                self.assertEqual([tool["name"] for tool in tools], ["execute_code"])
                self.assertEqual("annotations" in tools[0], agreed >= "2025-03-26")
                self.assertIs(tools[0]["inputSchema"]["additionalProperties"], False)
                self.assertEqual(list(tools[0]["inputSchema"]["properties"]), ["code"])

    def test_ping_is_answered_at_any_time_and_nothing_unknown(self):
        """MCP-10"""
        client = self.client()
        self.assertEqual(client.request("ping")["result"], {})
        client.notify("notifications/foo")
        self.assertError(client.request("foo"), -32601)
        client.initialize()
        for method in ("resources/list", "resources/read", "prompts/list", "foo", "completion/complete"):
            self.assertError(client.request(method, {}), -32601)
        client.notify("notifications/foo")
        client.start_call(FOREVER, "long", token=1)
        client.wait_for(lambda message: message.get("params", {}).get("progress") == 3)
        self.assertEqual(client.request("ping")["result"], {})
        client.notify("notifications/cancelled", {"requestId": "long"})
        self.assertEqual(client.request("ping")["result"], {})

    def test_batches_are_served_where_the_revision_has_them(self):
        for revision in HANDSHAKE:
            client = self.initialised(revision=revision)
            client.send([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, {"jsonrpc": "2.0", "method": "x"},
                         {"jsonrpc": "2.0", "id": "b", "method": "tools/call",
                          "params": {"name": "execute_code", "arguments": {"code": "print(1)"}}}])
            if revision < "2025-06-18":
                answer = client.wait_for(lambda message: isinstance(message, list))
                self.assertEqual(sorted(one["id"] for one in answer), ["a", "b"])
            else:
                self.assertError(client.wait_for(lambda message: "error" in message), -32600)


class Stateless(McpCase):
    def test_each_request_stands_for_itself(self):
        client = self.client()
        found = client.stateless("server/discover")["result"]
        self.assertIn(STATELESS, found["supportedVersions"])
        self.assertEqual(found["resultType"], "complete")
        self.assertNotIn("resources", found["capabilities"])
        listed = client.stateless("tools/list")["result"]
        self.assertEqual((listed["cacheScope"], len(listed["tools"])), ("public", 1))
        params = {"name": "execute_code", "arguments": {"code": "import os\nprint(os.path.exists('/home/user/x'))\nopen('/home/user/x', 'w')"}}
        for _ in range(2):  # a sandbox of its own each
            result = client.stateless("tools/call", params)["result"]
            self.assertEqual(result["structuredContent"]["stdout"], "False\n")
        self.assertError(client.request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}}), -32022)
        self.assertError(client.request("server/discover", {}), -32602)
        self.assertError(client.stateless("ping"), -32601)

    def test_both_eras_are_served_side_by_side(self):
        client = self.initialised()
        self.assertIn("1", self.text(client.call("print(1)")))
        self.assertEqual(client.stateless("tools/call", {"name": "execute_code", "arguments": {"code": "print(2)"}})
                         ["result"]["structuredContent"]["stdout"], "2\n")

    def test_a_conversation_goes_on_by_its_handle(self):
        client = self.client("--conversations", stderr=subprocess.PIPE)
        call = lambda **arguments: client.stateless("tools/call", {"name": "execute_code", "arguments": arguments})["result"]  # noqa: E731
        first = call(code="open('/home/user/x', 'w').write('kept')")
        handle = first["structuredContent"]["conversation"]
        self.assertGreaterEqual(len(handle), 32)
        self.assertEqual(call(code="print(open('/home/user/x').read())", conversation=handle)["structuredContent"]["stdout"], "kept\n")
        for wrong in ("0" * 32, handle[:-1], "", 5, None, ["x"]):
            refused = call(code="print(1)", conversation=wrong)
            self.assertTrue(refused["isError"])
            self.assertIn("'conversation'", self.text(refused))
        other = self.client("--conversations")
        self.assertTrue(other.stateless("tools/call", {"name": "execute_code", "arguments": {
            "code": "print(1)", "conversation": handle}})["result"]["isError"])
        self.assertIn("conversation", client.stateless("tools/list")["result"]["tools"][0]["inputSchema"]["properties"])
        client.close_input()
        self.assertEqual(client.wait(), 0)
        self.assertNotIn(handle.encode(), client.process.stderr.read())


class Calls(Telling):
    def test_a_cancelled_program_ends_and_is_not_answered(self):
        """MCP-06"""
        client = self.telling("--timeout", 1000)
        namespace = self.start_forever(client, 5)
        for wrong in ("5", 6, "nobody", None, 5.5, {}):
            client.notify("notifications/cancelled", {"requestId": wrong})
        self.assertEqual(client.request("ping")["result"], {})
        self.assertTrue(processes_in(namespace))
        started = time.monotonic()
        client.notify("notifications/cancelled", {"requestId": 5})
        while processes_in(namespace):
            self.assertLess(time.monotonic() - started, PATIENCE)
        print(f"\nfrom cancelling to the last process's end: {time.monotonic() - started:.3f} s", file=sys.stderr)
        self.assertEqual(client.call("print('next')")["structuredContent"]["stdout"], "next\n")
        with client.changed:
            self.assertFalse([line for line in client.lines if json.loads(line).get("id") == 5])

    def test_others_are_served_while_a_program_runs(self):
        client = self.initialised("--timeout", 1000)
        client.start_call("import time; print('up', flush=True); time.sleep(1000)", "long", token=1)
        client.wait_for(lambda message: "printed" in message.get("params", {}).get("message", ""))
        took = []
        for _ in range(20):
            started = time.monotonic()
            self.assertEqual(client.request("ping")["result"], {})
            took.append(time.monotonic() - started)
        print(f"\nping while a program runs: median {sorted(took)[10] * 1000:.2f} ms, most {max(took) * 1000:.2f} ms", file=sys.stderr)
        self.assertEqual(client.call("print('second')")["structuredContent"]["stdout"], "second\n")

    def test_the_program_has_no_input_of_ours(self):
        """MCP-08"""
        client = self.initialised()
        client.start_call("import sys; print(len(sys.stdin.buffer.read()))", 1)
        client.send(PING)
        client.wait_for(lambda message: message.get("id") == "ping")
        answer = client.wait_for(lambda message: message.get("id") == 1)
        self.assertEqual(answer["result"]["structuredContent"]["stdout"], "0\n")

    def test_progress_increases_and_ends_before_the_result(self):
        """MCP-14"""
        client = self.initialised()
        for token in (1, "a", 0):
            before = len(client.lines)
            client.call("for at in range(5000): print(at, flush=True)", token=token)
            messages = [json.loads(line) for line in client.lines[before:]]
            self.assertIn("result", messages[-1])
            told = [message["params"] for message in messages[:-1]]
            self.assertTrue(all(one["progressToken"] == token and type(one["progressToken"]) is type(token) for one in told))
            values = [one["progress"] for one in told]
            self.assertEqual(values, sorted(set(values)))
            self.assertTrue(3 <= len(values) <= 200, values)
        before = len(client.lines)
        client.call("for at in range(5000): print(at, flush=True)")
        self.assertEqual(len(client.lines), before + 1)

    def test_wrong_arguments_start_nothing(self):
        """MCP-16"""
        client = self.initialised("--backend", "linux")  # a choice would be tried at the start
        wrong = [None, [], "x", {}, {"code": 5}, {"code": None}, {"code": "1", "timeout": "5"}, {"code": "1", "timeout": -1},
                 {"code": "1", "timeout": 1e99}, {"code": "1", "x": 1}, {"code": "1", "files": "a"}, {"code": "1", "files": ["a"] * 10_000},
                 {"code": "1", "scope": "s"}, {"code": "1", "thread_id": "t"}, {"code": "1", "conversation": "c"}]
        for arguments in wrong:
            with self.subTest(arguments=str(arguments)[:60]):
                result = client.request("tools/call", {"name": "execute_code", "arguments": arguments})["result"]
                self.assertTrue(result["isError"])
                self.assertEqual(result["structuredContent"]["status"], "refused")
        self.assertTrue(client.request("tools/call", {"name": "execute_code"})["result"]["isError"])
        self.assertError(client.request("tools/call", {"name": "other", "arguments": {}}), -32602)
        client.send_bytes(b'{"jsonrpc":"2.0","id":"nan","method":"tools/call","params":{"name":"execute_code","arguments":{"code":NaN}}}\n')
        client.wait_for(lambda message: message.get("error", {}).get("code") == -32700)
        self.assertNothingStarted()

    def test_a_program_that_failed_is_an_ordinary_result(self):
        client = self.initialised()
        result = client.call("import sys; print('out'); sys.exit(3)")
        self.assertFalse(result["isError"])
        self.assertEqual(result["structuredContent"]["exit_code"], 3)

    def test_a_session_keeps_its_sandbox_and_shares_it_with_nobody(self):
        one, two = self.initialised(), self.initialised()
        one.call("open('/home/user/x', 'w')")
        look = "import os; print(os.path.exists('/home/user/x'))"
        self.assertEqual(one.call(look)["structuredContent"]["stdout"], "True\n")
        self.assertEqual(two.call(look)["structuredContent"]["stdout"], "False\n")


class Files(McpCase):
    def test_files_of_the_directory_are_shared_byte_for_byte(self):
        data = self.dir / "data"
        awkward = bytes(range(256)) * 10
        self.write("data/sub/a.bin", awkward)
        (data / "link").symlink_to("/etc/passwd")
        client = self.initialised("--files", data)
        result = client.call("import hashlib; print(hashlib.sha256(open('sub/a.bin', 'rb').read()).hexdigest())", files=["sub/a.bin"])
        self.assertEqual(result["structuredContent"]["stdout"].strip(), hashlib.sha256(awkward).hexdigest())
        for wrong in ("link", "../x", "/etc/passwd", "missing", "sub"):
            refused = client.call("print(1)", files=[wrong])
            self.assertTrue(refused["isError"], refused)
            if wrong in ("../x", "/etc/passwd"):
                self.assertNotIn(wrong, self.text(refused))

    def test_what_landed_is_read_by_its_address(self):
        client = self.initialised("--out-dir", self.out)
        content = bytes(range(256))
        result = client.call("open('a.csv', 'w').write('1,2'); open('plot.png', 'wb').write(bytes(range(256)))",
                             outputs=["a.csv", "plot.png"])
        links = result["content"][1:]
        self.assertEqual([(link["type"], link["name"], link["mimeType"], link["size"]) for link in links],
                         [("resource_link", "a.csv", "text/csv", 3), ("resource_link", "plot.png", "image/png", 256)])
        self.assertEqual([one["uri"] for one in result["structuredContent"]["artifacts"]], [link["uri"] for link in links])
        self.assertNotIn("path", result["structuredContent"]["artifacts"][0])
        self.assertNotIn(str(self.dir), json.dumps(result))
        read = lambda uri: client.request("resources/read", {"uri": uri})  # noqa: E731
        self.assertEqual(read(links[0]["uri"])["result"]["contents"][0]["text"], "1,2")
        blob = base64.b64decode(read(links[1]["uri"])["result"]["contents"][0]["blob"])
        self.assertEqual(hashlib.sha256(blob).digest(), hashlib.sha256(content).digest())
        landed = [path for path in self.out.rglob("*") if path.is_file()]
        self.assertEqual(sorted(path.name for path in landed), ["a.csv", "plot.png"])
        self.assertEqual({path.parent.parent for path in landed}, {self.out})
        for wrong in ("file:///etc/passwd", "casemate://artifact/../../etc/passwd", links[0]["uri"] + "x",
                      f"file://{landed[0]}", str(landed[0])):
            self.assertError(read(wrong), -32002)
        listed = client.request("resources/list", {})["result"]["resources"]
        self.assertEqual([one["uri"] for one in listed], [link["uri"] for link in links])
        other = self.initialised("--out-dir", self.out)
        self.assertError(other.request("resources/read", {"uri": links[0]["uri"]}), -32002)
        stateless = client.stateless("resources/read", {"uri": links[0]["uri"]})["result"]
        self.assertEqual((stateless["contents"][0]["text"], stateless["cacheScope"]), ("1,2", "private"))
        self.assertError(client.stateless("resources/read", {"uri": "x:y"}), -32602)

    def test_no_media_type_is_told_with_no_mime(self):
        client = self.initialised("--out-dir", self.out, "--no-mime", "--manifest")
        result = client.call("import json; open('a.txt', 'w').write('x'); json.dump({'outputs': [{'path': 'a.txt'}]}, open('outputs.json', 'w'))")
        self.assertNotIn("mimeType", result["content"][1])
        content = client.request("resources/read", {"uri": result["content"][1]["uri"]})["result"]["contents"][0]
        self.assertEqual(content["blob"], base64.b64encode(b"x").decode())

    def test_an_address_stands_for_the_bytes_that_landed(self):
        client = self.initialised("--out-dir", self.out, "--overwrite")
        land = lambda text: client.call(f"open('a.txt', 'w').write({text!r})", outputs=["a.txt"])["content"][1]["uri"]  # noqa: E731
        read = lambda uri: client.request("resources/read", {"uri": uri})  # noqa: E731
        old = land("old")
        self.assertEqual(read(old)["result"]["contents"][0]["text"], "old")
        new = land("new")
        self.assertError(read(old), -32002)
        self.assertEqual(read(new)["result"]["contents"][0]["text"], "new")

    def test_check_refuses_what_serving_refuses(self):
        data, keys = self.dir / "data", self.dir / "keys"
        for directory in (data, keys):
            directory.mkdir()
        for name in (data / "tokens", keys / "tokens"):
            name.write_text("0123456789abcdefghijklmnop\n")
        (keys / "pem").write_text("no certificate")
        http = ["--http", "127.0.0.1:0"]
        for wrong, word in ((["--files", data, "--out-dir", data / "new"], "lie in one another"),
                            (["--http", "0.0.0.0:0"], "bearer tokens"),
                            ([*http, "--token-file", keys / "missing"], "cannot be read"),
                            ([*http, "--tls-cert", keys / "pem", "--tls-key", keys / "pem"], "certificate"),
                            ([*http, "--files", data, "--token-file", data / "tokens"], "--token-file"),
                            ([*http, "--out-dir", data, "--token-file", data / "tokens"], "--token-file")):
            for check in ([], ["--check"]):
                with self.subTest(wrong=word, check=check):
                    self.assertRefused(self.run_argv(self.mcp_argv(*check, *wrong)), "InvalidArgument", word)
                    self.assertFalse((data / "new").exists())
        fine = self.mcp_argv("--check", *http, "--files", data, "--token-file", keys / "tokens", "--out-dir", self.out)
        self.assertEqual(self.run_argv(fine).status, 0)

    def test_directories_that_overlap_are_refused(self):
        data = self.dir / "data"
        data.mkdir()
        (self.dir / "alias").symlink_to(data)
        for out in (data, data / "out", self.dir, self.dir / "alias", self.dir / "alias/new"):
            with self.subTest(out=out):
                existed = Path(out).exists()
                result = self.run_argv(self.mcp_argv("--files", data, "--out-dir", out))
                self.assertRefused(result, "InvalidArgument")
                self.assertEqual(Path(out).exists(), existed, "a refusal leaves nothing")
        client = self.initialised("--files", data, "--out-dir", data, "--unsafe-shared-store")
        self.assertEqual(client.request("ping")["result"], {})

    def mcp_argv(self, *options):
        return [str(PROGRAM), "mcp", *map(str, options)]

    def test_a_host_tool_is_called_and_told_of(self):
        client = self.initialised("--host-tool", "price=echo 4.20")
        self.assertTrue(client.request("tools/list", {})["result"]["tools"][0]["annotations"]["openWorldHint"])
        result = client.call("import casemate_tools; print(casemate_tools.call('price'))")
        self.assertEqual(result["structuredContent"]["stdout"], "4.2\n")

    def test_allowed_hosts_are_told_of_and_the_way_there_is_open(self):
        client = self.initialised("--allow", "allowed.test")
        tool = client.request("tools/list", {})["result"]["tools"][0]
        self.assertTrue(tool["annotations"]["openWorldHint"])
        self.assertIn("these hosts and no others: allowed.test.", tool["description"])
        result = client.call("import socket; print(socket.gethostbyname('allowed.test'))\n"
                             "try: socket.gethostbyname('denied.test')\nexcept OSError: print('unknown')")
        self.assertRegex(result["structuredContent"]["stdout"], r"^198\.18\.\d+\.\d+\nunknown\n$")
        self.assertEqual([(each["host"], each["decision"], each["reason"]) for each in result["structuredContent"]["egress"]],
                         [("denied.test", "denied", "")])

    def test_an_allowed_host_is_told_of(self):
        tool = self.initialised("--allow", "host.example").request("tools/list", {})["result"]["tools"][0]
        self.assertTrue(tool["annotations"]["openWorldHint"])
        self.assertIn("host.example", tool["description"])
        tool = self.initialised().request("tools/list", {})["result"]["tools"][0]
        self.assertEqual((tool["annotations"]["openWorldHint"], tool["annotations"]["readOnlyHint"]), (False, False))

    def test_environment_and_limits_are_the_operators(self):
        client = self.initialised("--env", "GREETING=hi")
        self.assertEqual(client.call("import os; print(os.environ['GREETING'])")["structuredContent"]["stdout"], "hi\n")
        client = self.initialised("--timeout", 0.5)
        self.assertEqual(client.call("while True: pass")["structuredContent"]["status"], "timed_out")

    def test_iso_17_each_policy_of_the_host_refuses_before_anything_is_served(self):
        """ISO-17"""
        (self.dir / "in").mkdir()
        for code, options in (
                ("SandboxCapabilityDenied", ("--deny-capability", "exec")),
                ("SandboxCapabilityDenied", ("--deny-capability", "files_out", "--out-dir", self.out)),
                ("SandboxIdentityDenied", ("--deny-identity", "app", "--host-tool", "x=cat")),
                ("SandboxTransferLimitsNotPermitted", ("--files-in-limit", "8G,32G,64", "--files", self.dir / "in")),
                ("SandboxTransferLimitsNotPermitted", ("--files-out-limit", "8G,32G,8", "--out-dir", self.out)),
                ("SandboxBackendNotPermitted", ("--min-isolation", "vm"))):
            for check in ((), ("--check",)):
                with self.subTest(code=code, options=options, check=check):
                    result = self.run_argv(self.mcp_argv(*check, *options))
                    self.assertRefused(result, code)
                    self.assertEqual(result.out, b"")
        self.assertNothingStarted()

    def test_iso_17_a_cap_refuses_in_a_call(self):
        """ISO-17"""
        (self.dir / "in").mkdir()
        (self.dir / "in" / "big").write_bytes(b"x" * 2048)
        client = self.initialised("--files", self.dir / "in", "--files-in-limit", "1K,8K,4", "--out-dir", self.out,
                                  "--files-out-limit", "1K,8K,1")
        result = client.request("tools/call", {"name": "execute_code", "arguments": {"code": "print(1)", "files": ["big"]}})
        self.assertTrue(result["result"]["isError"], result)
        self.assertIn("1024 bytes", result["result"]["content"][0]["text"])
        result = client.request("tools/call", {"name": "execute_code", "arguments": {
            "code": "open('o', 'w').write('x' * 2048)", "outputs": ["o"]}})["result"]
        self.assertEqual(result["structuredContent"]["error"]["code"], "SandboxTransferCapExceeded", result)
        self.assertNothingLanded()

    def test_check_serves_nothing(self):
        result = self.run_argv(self.mcp_argv("--check", "--out-dir", self.out))
        self.assertEqual((result.status, result.out), (0, b""), result)
        self.assertFalse(self.out.exists())
        self.assertRefused(self.run_argv(self.mcp_argv("--check", "--min-isolation", "vm")), "SandboxBackendNotPermitted")
        for wrong in (["--json"], ["--keep"], ["--thread", "x"], ["--file", "x"], ["--output", "x"], ["--stdin"], ["program.py"],
                      ["--manifest"], ["--overwrite"], ["--idle-ttl", "5"]):
            self.assertRefused(self.run_argv(self.mcp_argv("--check", *wrong)), "InvalidArgument")
        config = self.write("casemate.toml", "[mcp]\nmin-isolation = \"vm\"\nconversations = true\n")
        self.assertRefused(self.run_argv(self.mcp_argv("--check", "--config", config)), "SandboxBackendNotPermitted")


class Ends(Telling):
    def test_the_end_of_the_input_ends_everything(self):
        client = self.telling()
        namespaces = [self.start_forever(client, request_id) for request_id in (1, 2)]
        started = time.monotonic()
        client.close_input()
        self.assertEqual(client.wait(), 0)
        for namespace in namespaces:
            self.assertNothingRuns(namespace)
        took = time.monotonic() - started
        print(f"\nfrom the end of the input to the exit: {took:.2f} s", file=sys.stderr)
        self.assertFalse([line for line in client.lines if json.loads(line).get("id") == 1])

    def test_what_was_read_and_is_quick_is_answered_at_the_end(self):
        lines = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}, PING,
                 {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}]
        for last in (b"\n", b""):
            process = self.start([str(PROGRAM), "mcp"], stdin=subprocess.PIPE)
            data = b"\n".join(json.dumps(line).encode() for line in lines) + last
            out, _ = process.communicate(data, timeout=PATIENCE)
            self.assertEqual([json.loads(line)["id"] for line in out.splitlines()], [0, "ping", 1])
            self.assertEqual(process.returncode, 0)

    def test_signals_end_it_with_their_status(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            client = self.telling()
            namespace = self.start_forever(client, 1)
            client.process.send_signal(number)
            self.assertEqual(client.wait(), status)
            self.assertNothingRuns(namespace)

    def test_a_client_that_never_reads_bounds_memory_and_hangs_nothing(self):
        """MCP-18"""
        client = self.client(reads=False)
        os.set_blocking(client.process.stdin.fileno(), False)
        flood = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}).encode() + b"\n"
        call = json.dumps({"jsonrpc": "2.0", "id": "ID", "method": "tools/call", "params": {
            "_meta": {"progressToken": "t"}, "name": "execute_code",
            "arguments": {"code": "while True: print('x' * 1000)\n#" + "y" * 1_000_000}}}).encode() + b"\n"
        data = flood + b"".join(call.replace(b"ID", b"%d" % at) for at in range(200))
        ping = b'{"jsonrpc":"2.0","id":"%d","method":"ping"}\n'
        data += b"".join(ping % at for at in range(200_000))
        fd, at = client.process.stdin.fileno(), 0
        while at < len(data) and select.select([], [fd], [], 2)[1]:  # until it takes no more
            try:
                at += os.write(fd, data[at:at + 1_000_000])
            except BlockingIOError:
                pass
        self.assertLess(at, len(data), "it read for ever")
        if not SANITIZED:
            self.assertLess(client.memory(), 400_000_000)
        client.close_input()
        self.assertEqual(client.wait(), 0)

    def test_standard_error_that_nobody_reads_holds_nothing_up(self):
        client = self.client("-v", stderr=subprocess.PIPE)
        fcntl.fcntl(client.process.stderr.fileno(), fcntl.F_SETPIPE_SZ, 4096)
        client.initialize()
        for _ in range(300):
            self.assertTrue(client.request("tools/call", {"name": "execute_code", "arguments": {"code": 5}})["result"]["isError"])
        self.assertEqual(client.call("print(1)")["structuredContent"]["stdout"], "1\n")
        client.close_input()
        self.assertEqual(client.wait(), 0)

    def test_a_closed_output_ends_it(self):
        client = self.client(reads=False)
        client.process.stdout.close()
        self.assertEqual(client.wait(), 141)

    def test_the_floor_and_the_backend_are_said_at_the_start(self):
        client = self.client(stderr=subprocess.PIPE)
        line = client.process.stderr.readline()
        self.assertIn(b"floor container, backend linux", line)
        self.assertEqual(client.request("ping")["result"], {})


class Documents(McpCase):
    def test_every_configuration_shown_is_one_that_can_be_served(self):
        """docs/mcp.md"""
        page = ROOT / "docs/mcp.md"
        if not page.exists():
            self.skipTest("the pages were not copied")
        text = page.read_text()
        found = 0
        for block in re.findall(r"^```json\n(.*?)^```$", text, re.M | re.S):
            (servers,) = json.loads(block).values()
            for server in servers.values():
                self.assertEqual(server["command"], "casemate")
                arguments = [one.replace("/srv", str(self.dir)) for one in server["args"]]
                (self.dir / "shared").mkdir(exist_ok=True)
                result = self.run_argv([str(PROGRAM), *arguments, "--check"])
                self.assertEqual(result.status, 0, result)
                found += 1
        self.assertGreaterEqual(found, 3)


if __name__ == "__main__":
    unittest.main()
