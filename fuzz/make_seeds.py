#!/usr/bin/python3
"""Writes the seeds of fuzz/corpus: a seed a kind of message, small, made to be read here.

make_seeds.py [DIRECTORY]. Files it does not name (`found-*`: what a fuzzer found once) are left alone.
A test holds the corpus against it.
"""

import gzip
import io
import json
import sys
import tarfile
from pathlib import Path
from struct import pack


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return pack("<I", len(value)) + value


def frame(kind, payload=b""):
    return pack("<IBxxx", len(payload), kind) + payload


def path(directory, name):
    return text(directory) + text(name)


def exec_message(argv, directory, environment, piped, timeout):
    words = b"".join(text(word) for word in argv)
    entries = b"".join(text(name) + text(value) for name, value in environment)
    return (pack("<I", len(argv)) + words + text(directory) + pack("<I", len(environment)) + entries
            + pack("<BQ", piped, timeout))


def ended(cause, code, signal, known=1):
    return pack("<BiiQQQBBBB", cause, code, signal, 10**9, 10**8, 2**20, known, 0, 0, 0)


def entry(name, kind, size):
    return text(name) + pack("<BQ", kind, size)


# Message kind -> (wire value, payload): casemate/guest/protocol.h.
MESSAGES = {
    "failed": (1, pack("<Bi", 0, 2) + text("no such file")),
    "failed-path": (1, pack("<Bi", 1, 0) + text("")),
    "open-call": (2, pack("<I", 4) + text("0123456789ab") + pack("<QQBB", 10**9, 500, 1, 1)
                  + text(pack("<HBB", 1, 0, 12) + b"allowed.test" + pack("<BHH", 2, 80, 443))),
    "call-opened": (3, pack("<I", 4) + text("/casemate/call/host-tools.sock") + pack("<I", 3128)),
    "attach": (4, b"\x01"),
    "call-closed": (6, b"\x01"),
    "exec": (16, exec_message(["python3", "program.py"], "/workspace/0123456789ab/work",
                              [("LANG", "C.UTF-8"), ("EMPTY", "")], 1, 10**9)),
    "hold": (28, text("/workspace/0123456789ab/program/program.py")
             + text(exec_message(["python3", "/workspace/0123456789ab/program/program.py"],
                                 "/workspace/0123456789ab/work", [("LANG", "C.UTF-8")], 0, 0))
             + pack("<I", 2) + text("json") + text("os.path")),
    "release": (29, pack("<Q", 10**9) + text("print(1)\n")),
    "stdin-taken": (23, pack("<I", 4096)),
    "signal": (25, b"\x0f"),
    "ended": (27, ended(0, 3, 0)),
    "ended-signaled": (27, ended(1, 0, 9)),
    "ended-timed-out": (27, ended(2, 0, 0)),
    "write-file": (32, path("/workspace", "a/b.txt") + pack("<Q", 5)),
    "stat-file": (33, path("/workspace", "")),
    "read-file": (34, path("/workspace", "a") + pack("<Q", 2**20)),
    "remove-file": (35, path("/home/user", "d") + b"\x01"),
    "list-directory": (36, path("/", "workspace")),
    "entry": (40, pack("<BBQ", 1, 0, 12)),
    "entry-missing": (40, b"\x00"),
    "entries": (41, entry("a", 0, 3) + entry("link", 2, 0) + entry("d", 1, 0)),
}

NAMES = {
    "plain": "report.csv\nplots/sales.png",
    "refused": "\n/etc/passwd\na/../b\na\\b",
    "segments": "a//b\n./a\na/\n..a",
    "controls": "a\x1bb\na\x7f\na\u0085b\na\u202eb",
    "invalid": b"caf\xe9\n\xed\xa0\x80\n\xc0\xaf\n\xff",
    "case": "A.txt\na.txt\nCafé\ncafe\u0301",
    "nested": "a\na/b\nA\nA/B/c",
    "long": "n" * 255 + "\n" + "é" * 128,
    "windows": "CON\ncom1.txt\na:b\nend. .",
}

PATHS = {
    "inside": "workspace/x/work\nsub/a.txt",
    "absolute": "workspace\n/workspace/../workspace/a",
    "outside": "workspace\n../../etc/passwd",
    "sibling": "a/b\n/a/b2",
    "root": "\n..//./a/",
    "backslash": "w\na\\..\\b",
    "nul": b"w\na\x00b",
    "quotes": "w\nit's $(id) `x` \"y\" *",
}

HOSTS = {
    "name": "Example.org.", "port": "example.org:8443", "suffix": "*.files.example.org",
    "ipv4": "192.0.2.7:443", "ipv6": "[2001:DB8::7]:80", "whole-domain": "*.com",
    "octal": "0177.0.0.1", "number": "2130706433", "hex": "0x7f.1", "scheme": "https://example.org/",
    "range": "10.0.0.0/8", "star-inside": "a.*.example.org", "zone": "[fe80::1%eth0]",
    "idn": "xn--bcher-kva.example", "long-label": "a" * 64 + ".example",
}

HOSTS.update({
    "international": "bücher.example", "full-stop": "a\uff0eexample", "circled": "\u2460.0.0.1",
    "public-suffix": "*.co.uk", "localhost": "localhost:8080", "broken-idn": "xn--99999999.example",
})

JSON = {
    "scalars": '[0,-1,1.5,1e3,"a",true,false,null]',
    "nested": '{"a":{"b":[{"c":[]}]},"d":{}}',
    "escapes": r'"\u00e9\ud83d\ude00\n\"\\\/"',
    "lone-surrogate": r'"\ud800"',
    "big": "[9223372036854775807,18446744073709551615,-9223372036854775808]",
    "too-big": "18446744073709551616",
    "overflow": "1e999",
    "tiny": "1e-999",
    "twice": '{"a":1,"\\u0061":2}',
    "deep": "[" * 64 + "]" * 64,
    "too-deep": "[" * 65 + "]" * 65,
    "bom": b"\xef\xbb\xbf{}",
    "invalid": b'"\xc3"',
    "trailing": "{} x",
    "comma": "[1,]",
    "nan": "[NaN,Infinity]",
}

SCHEMAS = {
    "type": ('{"type":["integer","null"]}', "1.0"),
    "object": ('{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],'
               '"additionalProperties":false}', '{"a":"x"}'),
    "counts": ('{"minProperties":1,"maxProperties":2,"minItems":1,"maxItems":2,"uniqueItems":true}',
               "[1,1.0]"),
    "items": ('{"prefixItems":[{"type":"string"}],"items":{"minimum":0}}', '["a",1,-1]'),
    "numbers": ('{"minimum":0,"maximum":10,"exclusiveMinimum":-1,"exclusiveMaximum":11,'
                '"multipleOf":5}', "5"),
    "lengths": ('{"minLength":1,"maxLength":2}', '"\\u00e9\\u00e9"'),
    "choice": ('{"enum":[1,"a",{"b":[]}],"not":{"const":2}}', '{"b":[]}'),
    "combined": ('{"allOf":[{"type":"array"}],"anyOf":[true,false],"oneOf":[{"minItems":1}]}', "[0]"),
    "recursive": ('{"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}},'
                  '"$ref":"#/$defs/n"}', '{"n":{"n":{}}}'),
    "loop": ('{"$ref":"#"}', "1"),
    "unknown": ('{"pattern":"a"}', '"a"'),
    "boolean": ("false", "null"),
}

CALLS = {
    "call": '{"id": "0001", "name": "lookup", "arguments": {"key": "a", "n": 1}}',
    "abandoned": '{"id": "0001", "abandoned": true}',
    "no-name": '{"name": 7, "arguments": []}',
    "no-object": "[]",
    "half": '{"id": "0001", "na',
    "invalid": b'{"name": "\xff"}',
    "big-number": '{"name": "a", "arguments": {"n": 123456789012345678901234567890}}',
}

MANIFESTS = {
    "list": b"\x00" + b'{"outputs":[{"path":"a.txt"},{"path":"d/b.png","note":1}]}',
    "link": b"\x80" + b'{"outputs":[]}',
    "grown": b"\x02" + b'{"outputs":[{"path":"a"}]}',
    "shrunk": b"\x01" + b'{"outputs":[]}',
    "unknown-size": b"\x04" + b'{"outputs":[]}',
    "no-list": b"\x00" + b'{"outputs":{}}',
    "no-path": b"\x00" + b'{"outputs":[{"path":1}]}',
    "no-json": b"\x00" + b"outputs: a",
}

RUNS = {
    "text": b"\x00\xff\x00out\n\x00err\n",
    "cut": b"\x0b\x20\x01head and tail\x00\xc3\xa9\xc3\xa9",
    "bytes": b"\x01\x10\x89\xff\xfe\xc3\x00\xed\xa0\x80",
    "controls": b"\x00\x40\x00\x1b]0;x\x07\r\n\x00\xe2\x80\xae",
}

UTF8 = {
    "text": "\x02\x05aé€😀".encode(),
    "broken": b"\x00\x03\xe2\x82\xf0\x9f\x98a\xff",
    "overlong": b"\x01\x08\xc0\x80\xe0\x80\x80\xf8\x88",
    "surrogate": b"\x03\x02\xed\xa0\x80\xed\xbf\xbf",
    "marks": "\x04\x10e\u0301\u202e\u200b\u0130\u2028".encode(),
}

VALUES = {
    "bytes": "16777216", "size": "512M", "gigabytes": "1g", "too-large": "18446744073709551615G",
    "wraps": "17179869185G",
    "fraction": "0.5", "nanosecond": "0.000000001", "week": "604800", "point": "1.",
    "limits": "8M,32M,64", "assignment": "NAME=a=b", "negative": "-1", "hex": "0x10",
    "signed": "+1", "exponent": "1e3", "white": " 1 ",
}

CONFIGS = {
    "run": '[run]\ntimeout = 60\nmemory = "1G"\njson = true\nout-dir = "/srv"\noverwrite = true\n',
    "lists": '[run]\nlabel = ["a=b", "c=d"]\ndeny-capability = ["host_tools"]\n',
    "backend": '[backends.linux]\nstate_dir = "/run/x"\n',
    "backends": "[backends]\njson = true\n",
    "other-file": '[run]\nconfig = "b.toml"\n',
    "unknown": "[run]\ntimeuot = 60\n",
    "type": '[run]\ntimeout = "60"\njson = 1\n',
    "range": "[run]\ntimeout = 0\npids = -1\ncpus = 1e300\n",
    "twice": "[run]\npids = 5\npids = 6\n",
    "time": "[run]\ntimeout = 1979-05-27\n",
    "inline": 'run = { timeout = 1.5, "cpus" = 0.5 }\n',
    "relative": '[backends.linux]\nstate_dir = "run"\n',
}

LINES = {
    "run": ["program.py", "--", "first", "--second"],
    "options": ["--timeout", "5", "--memory=256M", "--pids", "10", "--cpus=0.5", "p.py"],
    "files": ["--file", "a=/tmp/a", "--file=b", "--output", "c", "--out-dir", "/o", "-"],
    "twice": ["--timeout", "1", "--timeout=2", "p"],
    "unknown": ["--timeuot", "1", "p"],
    "empty": ["--env=", "--label", "=x", ""],
    "key": ["--scope", "s", "--thread", "t", "--agent", "a", "--json", "-v", "p"],
    "limits": ["--files-in-limit", "1K,2K,3", "--files-out-limit=1,1,1", "p"],
    "floor": ["--min-isolation", "microvm", "--backend=linux", "--deny-identity", "user", "p"],
}


def call(number, name, arguments):
    body = pack("<IH", number, len(name)) + name + arguments
    return pack("<I", len(body)) + body


CHANNELS = {
    "calls": b"\x04" + call(1, b"lookup", b'{"key":"a"}') + call(2, b"x", b"{}"),
    "too-large": b"\x40" + call(3, b"x", b" " * 300) + call(4, b"x", b"{}"),
    "malformed": b"\x00" + pack("<IIH", 6, 5, 9),
    "too-short": b"\x00" + pack("<IB", 5, 0),
    "too-long": b"\xff" + pack("<I", 2**32 - 1) + b"x",
    "half": b"\x02" + call(6, b"lookup", b'{"key":"a"}')[:-3],
}


def wide(number, width):
    return number.to_bytes(width, "big")


def vector(content, width):
    return wide(len(content), width) + content


def extension(kind, content):
    return wide(kind, 2) + vector(content, 2)


def server_name(name):
    return extension(0, vector(b"\0" + vector(name, 2), 2))


def hello(extensions, record=16384):
    body = b"\x03\x03" + b"r" * 32 + vector(b"s" * 32, 1) + vector(b"\x13\x01", 2) + vector(b"\0", 1)
    message = b"\x01" + vector(body + vector(extensions, 2), 3)
    cuts = range(0, len(message), record)
    return b"".join(b"\x16\x03\x01" + vector(message[cut:cut + record], 2) for cut in cuts)


HELLOS = {
    "plain": b"\xff" + hello(extension(10, b"xx") + server_name(b"a.test")),
    "records": b"\x02" + hello(server_name(b"a.test"), 7),
    "none": b"\x10" + hello(extension(10, b"xx")),
    "two": b"\x10" + hello(server_name(b"a.test") * 2),
    "secret": b"\x10" + hello(server_name(b"a.test") + extension(0xfe0d, b"inner")),
    "half": b"\x03" + hello(server_name(b"a.test"))[:-4],
    "http": b"\x00GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
}


def egress_request(host, port, door=2, version=1):
    return b"\x00" + pack("<BBHB", version, door, port, len(host)) + host


EGRESS = {
    "name": egress_request(b"Allowed.test.", 443), "below": egress_request(b"a.below.test", 8443),
    "address": egress_request(b"127.0.0.1", 80), "ipv6": egress_request(b"2001:DB8::7", 443),
    "nul": egress_request(b"allowed.test\0.evil.test", 443), "octal": egress_request(b"0177.0.0.1", 80),
    "port": egress_request(b"allowed.test", 22), "version": egress_request(b"allowed.test", 443, version=2),
    "opened": b"\x01\x00", "refused": b"\x01\x01no.", "lines": b"\x01\x01a\nb",
    "rules": b"\x02" + pack("<HBB", 2, 0, 6) + b"a.test" + pack("<BHH", 2, 80, 443) + pack("<BB", 3, 3) + b"::1"
             + pack("<BH", 1, 22),
}


def dns(name, kind=1, edns=False, flags=0x0100):
    wire = b"".join(bytes([len(label)]) + label for label in name.split(b".")) + b"\0"
    more = b"\0" + pack(">HHIH", 41, 1232, 0, 0) if edns else b""
    return pack(">HHHHHH", 0x1234, flags, 1, 0, 0, int(edns)) + wire + pack(">HH", kind, 1) + more


DNS = {
    "listed": dns(b"Allowed.Test"), "wildcard": dns(b"a.b.wild.test", edns=True), "other": dns(b"denied.test", edns=True),
    "ipv6": dns(b"allowed.test", 28), "dotted-label": pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + b"\x0callowed.test\0\0\1\0\1",
    "compressed": pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", "answer": dns(b"a.test", flags=0x8180),
    "update": dns(b"a.test", flags=0x2800), "cut": dns(b"allowed.test", edns=True)[:-3],
}

SOCKS = {
    "greeting": b"\x05\x02\x00\x02", "name": b"\x05\x01\x00\x03\x0callowed.test\x01\xbb",
    "nul": b"\x05\x01\x00\x03\x18denied.test\x00.allowed.test"[:-1] + b"\x01\xbb", "ipv4": b"\x05\x01\x00\x01\xc0\x00\x02\x07\x00P",
    "ipv6": b"\x05\x01\x00\x04" + b"\x20\x01\x0d\xb8" + bytes(11) + b"\x07\x00P", "bind": b"\x05\x02\x00\x03\x01a\x00P",
    "socks4": b"\x04\x01\x00P\x7f\x00\x00\x01\x00",
}

HEADS = {
    "connect": "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n",
    "absolute": "GET http://allowed.test/a?b HTTP/1.1\r\nHost: allowed.test\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n",
    "post": "POST http://allowed.test:8080 HTTP/1.1\r\nHost: allowed.test:8080\r\nContent-Length: 5\r\n\r\nhello",
    "chunked": "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n",
    "both": "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "folded": "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n b.test\r\n\r\n", "bare-feed": "GET http://a.test/ HTTP/1.1\nHost: a.test\n\n",
    "user": "GET http://a.test@denied.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "address": "CONNECT [2001:db8::7]:443 HTTP/1.0\r\n\r\n",
    "body": "5\r\nhello\r\n0\r\n\r\nGET /", "extension": "5;x=y\r\nhello\r\n",
    "answer": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nhi",
}

DIGEST = "sha256:" + "0123456789abcdef" * 4
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def descriptor(media_type, **more):
    return {"mediaType": media_type, "digest": DIGEST, "size": 512, **more}


DOCUMENTS = {
    "index": (0, {"schemaVersion": 2, "manifests": [
        descriptor(MANIFEST_TYPE, platform={"os": "linux", "architecture": "amd64"}),
        descriptor(MANIFEST_TYPE, platform={"os": "linux", "architecture": "arm64"})]}),
    "manifest": (1, {"schemaVersion": 2, "config": descriptor(CONFIG_TYPE), "layers": [descriptor(LAYER_TYPE)]}),
    "config": (2, {"os": "linux", "architecture": "amd64", "config": {"Env": ["PATH=/usr/bin", "A=b=c"]},
                   "rootfs": {"type": "layers", "diff_ids": [DIGEST]}}),
    "archive": (3, [{"Config": "config.json", "RepoTags": ["a:b"], "Layers": ["layer.tar"]}]),
    "short-digest": (1, {"config": {**descriptor(CONFIG_TYPE), "digest": "sha256:00"}, "layers": []}),
    "negative": (1, {"config": {**descriptor(CONFIG_TYPE), "size": -1}, "layers": [descriptor(LAYER_TYPE)]}),
    "variable": (2, {"os": "linux", "architecture": "amd64", "config": {"Env": ["=x", "PATH", "A\0=b"]},
                     "rootfs": {"type": "layers", "diff_ids": [DIGEST]}}),
    "no-object": (0, []),
}

REFERENCES = {
    "host": "host", "dir": "dir:/srv/root", "oci": "oci:/srv/layout:tag", "archive": "docker-archive:a.tar",
    "name": "python", "full": f"registry.example.org:5000/a/b:1.2@{DIGEST}", "id": DIGEST, "upper": "Python:3",
    "option": "--help", "dots": "docker.io/../a", "empty-tag": "python:",
}


def layer(*entries):
    """Entries are (name, type, content or target, mode)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, content, mode in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = kind, mode, 10**9
            if kind == tarfile.REGTYPE:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.linkname = content
                archive.addfile(info)
    # Without the padding to a record of 20 blocks.
    return stream.getvalue().rstrip(b"\0") + b"\0" * 1024


REG, DIR, SYM, LNK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE

LAYERS = {
    "plain": layer(("bin", DIR, "", 0o755), ("bin/a", REG, b"#!/bin/sh\n", 0o4755), ("b", LNK, "bin/a", 0o644),
                   ("c", SYM, "/etc/passwd", 0o777)),
    "outside": layer(("../x", REG, b"x", 0o644)),
    "absolute": layer(("/x", REG, b"x", 0o644)),
    "through-a-link": layer(("d", SYM, "..", 0o777), ("d/canary", REG, b"x", 0o644)),
    "hard-link-out": layer(("x", LNK, "../canary", 0o644)),
    "whiteout": layer(("a", DIR, "", 0o755), ("a/b", REG, b"x", 0o644), ("a/.wh.b", REG, b"", 0o644),
                      ("a/.wh..wh..opq", REG, b"", 0o644)),
    "device": layer(("dev", DIR, "", 0o755), ("dev/null", tarfile.CHRTYPE, "", 0o666), ("p", tarfile.FIFOTYPE, "", 0o644)),
    "long-name": layer(("n" * 150, REG, b"x", 0o644), ("é\n", REG, b"", 0o644)),
    "replaced": layer(("a", DIR, "", 0o755), ("a/b", REG, b"x", 0o644), ("a", SYM, "..", 0o777),
                      ("a/canary", REG, b"y", 0o644)),
}


def conversations():
    """Operation, whether the control stream lies, what the guest says."""
    begun = frame(17) + frame(18)
    yield "exec", b"\x00\x00" + begun + frame(19, b"hello\n") + frame(27, ended(0, 7, 0))
    yield "exec-code-256", b"\x00\x00" + begun + frame(27, ended(0, 256, 0))
    yield "exec-failed", b"\x00\x00" + frame(17) + frame(1, MESSAGES["failed"][1])
    yield "exec-cut", b"\x00\x00" + begun + frame(20, b"half")
    yield "exec-flood", b"\x00\x00" + begun + frame(19, b"x" * 900) + frame(27, ended(1, 0, 9))
    yield "read", b"\x01\x00" + frame(37, b"content") + frame(38)
    yield "read-over", b"\x01\x00" + frame(37, b"x" * 1001) + frame(38)
    yield "list", b"\x02\x00" + frame(41, MESSAGES["entries"][1]) + frame(38)
    yield "stat", b"\x03\x00" + frame(40, MESSAGES["entry"][1])
    yield "write", b"\x04\x00" + frame(39)
    yield "open-refused", b"\x00\x03" + frame(1, MESSAGES["failed"][1])
    yield "open-and-gone", b"\x00\x03" + frame(3, MESSAGES["call-opened"][1])
    yield "open-garbage", b"\x00\x03GET / HTTP/1.1\r\n\r\n"


def message(method, params=None, **more):
    return json.dumps({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params}), **more})


STATELESS = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HELLO = message("initialize", {"protocolVersion": "2025-03-26"}, id=0)

# Lines of a client: casemate/mcp/server.h.
MCP = {
    "handshake": "\n".join([HELLO, message("notifications/initialized"), message("ping", id="p"), message("tools/list", id=1),
                            message("tools/call", {"name": "same", "arguments": {}, "_meta": {"progressToken": 0}}, id=2)]),
    "batch": HELLO + "\n[" + message("ping", id=1) + "," + message("x") + ",5," + message("tools/call", {"name": "same"}, id=2) + "]",
    "stateless": "\n".join(message(method, {"_meta": STATELESS, "name": "same", "uri": "casemate://artifact/0/a"}, id=method)
                           for method in ("server/discover", "tools/list", "tools/call", "resources/list", "resources/read", "ping")),
    "version": message("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}}, id=1),
    "ids": "\n".join(message("ping", id=one) for one in (0, -1, "", "x" * 1025, None, 1.5, [], 2**63, 2**64 - 1)),
    "cancelled": message("notifications/cancelled", {"requestId": 1}),
    "responses": '{"jsonrpc":"2.0","id":1,"result":{}}\n{"jsonrpc":"2.0","result":{}}\n{"jsonrpc":"2.0","id":1}',
    "faults": "\n".join(["", "NOT JSON", "{", "[]", "5", "[" * 70, '{"jsonrpc":"1.0","id":1,"method":"ping"}']),
    "resources": "\n".join([HELLO, message("resources/list", {"cursor": "0"}, id=1), message("resources/read", {"uri": 5}, id=2),
                            message("logging/setLevel", {"level": "debug"}, id=3), message("tools/call", {"name": "same", "arguments": {"conversation": "x"}}, id=4)]),
}


def http_request(line="POST /mcp HTTP/1.1", body="{}", **fields):
    head = {"Host": "localhost", "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream", "Content-Length": len(body)}
    head |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"{name}: {value}\r\n" for name, value in head.items() if value is not None]
    return f"{line}\r\n{''.join(lines)}\r\n{body}"


HTTP_REQUESTS = {
    "plain": http_request(),
    "twice": http_request() * 2,
    "stream": http_request(body="stream"),
    "stream-old": http_request("POST /mcp HTTP/1.0", body="stream"),
    "chunked": http_request(body="2\r\n{}\r\n0\r\n\r\n", Content_Length=None, Transfer_Encoding="chunked"),
    "expecting": http_request(Expect="100-continue"),
    "fields": http_request(Mcp_Session_Id="0123", MCP_Protocol_Version="2026-07-28", Mcp_Method="tools/call",
                           Mcp_Name="=?base64?c2F5?=", Authorization="Bearer 0123456789012345678901"),
    "get": http_request("GET /mcp HTTP/1.1", body="", Last_Event_ID="s.1", Content_Length=None),
    "delete": http_request("DELETE /mcp?x HTTP/1.1", body="", Content_Length=None),
    "host-evil": http_request(Host="evil.example"),
    "host-ipv6": http_request(Host="[::1]:80", Origin="http://[::ffff:127.0.0.1]:3000"),
    "origin-evil": http_request(Origin="https://localhost.evil.example"),
    "too-long": http_request(Content_Length=1001),
    "event-id": "0123456789abcdef.17",
}


def stream_message(channel, kind, payload=b""):
    return pack("<IHBx", channel, len(payload), kind) + payload


# casemate/guest/stream/multiplexer.h. From the host's side channel 1 is a call and 2 its listener.
GUEST = 0x80000000
STREAM_HELLO = stream_message(0, 1, b"casemate" + pack("<II", 1, 8))
CONNECTION = stream_message(GUEST, 2, pack("<BI", 1, 2))
STREAMS = {
    "guest": b"\xfe" + STREAM_HELLO + stream_message(1, 3, b"data") + CONNECTION
             + stream_message(GUEST, 3, b"more") + stream_message(GUEST, 5) + stream_message(1, 6)
             + stream_message(1, 5) + stream_message(0, 7),
    "guest-in-pieces": b"\x02" + STREAM_HELLO + CONNECTION + stream_message(GUEST, 3, b"x" * 300),
    "host": b"\xff" + STREAM_HELLO + b"".join(
        stream_message(number, 2, pack("<BI", kind, related))
        for number, kind, related in ((1, 0, 0), (2, 2, 1), (3, 1, 1), (4, 3, 1)))
            + stream_message(1, 3, b"call") + stream_message(3, 3, b"exec") + stream_message(4, 5)
            + stream_message(2, 5) + stream_message(0, 7),
    "credit": b"\xfc" + STREAM_HELLO + stream_message(1, 4, pack("<I", 1)),
    "unread": b"\xfc" + STREAM_HELLO + stream_message(1, 3, b"x" * 16384) * 9,
    "too-many": b"\xfc" + STREAM_HELLO + b"".join(
        stream_message(GUEST + i, 2, pack("<BI", 1, 2)) for i in range(6)),
    "other-version": b"\xfc" + stream_message(0, 1, b"casemate" + pack("<II", 2, 8)),
    "noise": b"\xfcSeaBIOS (version 1.16)\r\n",
    "cut": b"\xfc" + STREAM_HELLO + stream_message(1, 3, b"data")[:-2],
}


# casemate/guest/agent/archive_format.h.
def archived(kind, name, rest=b"", mode=0o700):
    return bytes([kind]) + pack("<I", len(name)) + name + pack("<IQI", mode, 1, 2) + rest


def archived_file(name, *extents, size=None, others=0, mode=0o644):
    size = max((at + len(data) for at, data in extents), default=0) if size is None else size
    parts = b"".join(pack("<QQ", at, len(data)) + data for at, data in extents)
    return archived(3, name, pack("<QB", size, others) + parts + pack("<QQ", 0, 0), mode)


def archive(*entries):
    return pack("<IQI", 0o755, 1, 2) + b"".join(entries) + b"\x02"


OTHER_NAME = b"\x06" + pack("<I", 1) + b"o" + pack("<I", 0)
ARCHIVES = {
    "plain": archive(archived_file(b"a", (0, b"bytes")), archived(1, b"d"), archived_file(b"b"), b"\x02"),
    "links": archive(archived(4, b"up", pack("<I", 9) + b"../canary"), archived_file(b"f", (0, b"x"), others=1), OTHER_NAME),
    "through-a-link": archive(archived(4, b"d", pack("<I", 2) + b".."), archived(1, b"d"), archived_file(b"canary"), b"\x02"),
    "holes": archive(archived_file(b"h", (4096, b"x"), (9000, b"y"), size=1 << 20), archived(5, b"fifo")),
    "closed": archive(archived(1, b"c", mode=0), archived_file(b"f", (0, b"x"), others=1, mode=0), b"\x02", OTHER_NAME),
    "beside": archive(archived_file(b"../beside", (0, b"x"))),
    "above": archive(archived(1, b".."), archived_file(b"x"), b"\x02"),
    "behind-the-end": archive(archived_file(b"f", (10, b"xyz"), size=11)),
    "no-such-file": archive(OTHER_NAME),
    "twice": archive(archived_file(b"f"), archived_file(b"f")),
    "cut": archive(archived_file(b"f", (0, b"bytes")))[:-9],
}


def seeds():
    stream = b"".join(frame(kind, payload) for kind, payload in MESSAGES.values())
    yield "frames", "messages", b"\x06" + stream
    yield "frames", "whole", b"\xff" + stream[:400]
    yield "frames", "data", b"\x40" + frame(19, b"x" * 300) + frame(38)
    yield "frames", "cut", b"\x00" + frame(19, b"abc")[:-1]
    yield "frames", "too-long", b"\x00" + pack("<IBxxx", 2**20 + 1, 19) + b"x"
    yield "frames", "reserved", b"\x00" + pack("<IBBBB", 1, 19, 0, 1, 0) + b"x"
    for name, (kind, payload) in MESSAGES.items():
        yield "protocol", name, bytes([kind]) + payload
    for name, words in LINES.items():
        yield "command_line", name, "\0".join(words)
    for name, (schema, value) in SCHEMAS.items():
        yield "json_schema", name, schema + "\0" + value
    for name, (kind, document) in DOCUMENTS.items():
        yield "image_documents", name, bytes([kind]) + json.dumps(document).encode()
    for name, reference in REFERENCES.items():
        yield "image_documents", f"reference-{name}", b"\x04" + reference.encode()
    for name, content in LAYERS.items():
        yield "image_layers", name, b"\x00" + content
        yield "image_layers", f"{name}-twice", b"\x01" + content
    yield "image_layers", "gzip", b"\x00" + gzip.compress(LAYERS["plain"], mtime=0)
    for name, content in conversations():
        yield "lying_guest", name, content
    for target, table in {
            "archives": ARCHIVES, "client_hello": HELLOS, "egress_frames": EGRESS, "channel_frames": CHANNELS, "artifact_names": NAMES, "guest_paths": PATHS, "host_patterns": HOSTS, "http_requests": HTTP_REQUESTS, "json": JSON,
            "mcp_messages": MCP, "over_exec": CALLS, "manifest": MANIFESTS, "run_json": RUNS, "utf8": UTF8,
            "values": VALUES, "config": CONFIGS, "dns_messages": DNS, "stream_messages": STREAMS, "socks_requests": SOCKS,
            "request_heads": {name: b"\x05" + head.encode() for name, head in HEADS.items()}}.items():
        for name, content in table.items():
            yield target, name, content


def main():
    corpus = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "corpus")
    for target, name, content in seeds():
        folder = corpus / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    main()
