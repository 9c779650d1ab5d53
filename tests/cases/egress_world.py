"""What is outside of the sandboxes of egress_test.py: run in a network and mount namespace of its own,
it gives loopback addresses that look like others', a name server that writes down what it was asked,
and servers that write down who came. Ends when its standard input does.

    unshare -n -m python3 egress_world.py DIRECTORY
"""

import http.server
import os
import resource
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
from pathlib import Path

PUBLIC, PUBLIC6, PRIVATE = "203.0.113.7", "2001:db8::7", "10.0.0.1"
# One name's answers alternate: first the public address, then a private one.
NAMES = {"allowed.test": [PUBLIC], "sub.wild.test": [PUBLIC], "a.b.wild.test": [PUBLIC], "other.test": [PUBLIC],
         "private.test": [PRIVATE], "loopback.test": ["127.0.0.1"], "metadata.test": ["169.254.169.254"],
         "mixed.test": [PRIVATE, PUBLIC], "denied.test": [PUBLIC], "silent.test": [PUBLIC]}


class Log:
    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        path.touch()

    def say(self, line):
        with self.lock, self.path.open("a") as file:
            file.write(line + "\n")


def answer(query, log):
    name, at = [], 12
    while query[at]:
        name.append(query[at + 1:at + 1 + query[at]].decode("ascii", "replace").lower())
        at += 1 + query[at]
    question, kind = query[12:at + 5], struct.unpack(">H", query[at + 1:at + 3])[0]
    name = ".".join(name)
    log.say(name)
    records = [socket.inet_aton(address) for address in NAMES.get(name, [])] if kind == 1 else []
    head = query[:2] + struct.pack(">HHHHH", 0x8180 | (0 if name in NAMES else 3), 1, len(records), 0, 0)
    return head + question + b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + each for each in records)


def serve_names(log):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    while True:
        query, client = server.recvfrom(4096)
        server.sendto(answer(query, log), client)


def web_handler(directory, log, port):
    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *words):
            super().__init__(*words, directory=directory)

        def do_GET(self):
            log.say(f"{port} {self.headers['Host']} {self.path}")
            if self.path != "/":
                return super().do_GET()
            self.reply(b"hello from " + self.headers["Host"].encode())

        def do_POST(self):
            log.say(f"{port} {self.headers['Host']} {self.path}")
            self.reply(self.rfile.read(int(self.headers["Content-Length"])).upper())

        def reply(self, body):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    return Handler


class Shouting(socketserver.StreamRequestHandler):
    """Answers each line in capitals: a protocol of its own, as a database has."""

    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())


class BreakingOff(socketserver.StreamRequestHandler):
    """Answers a line with a part, and with a reset in place of the rest."""

    def handle(self):
        self.wfile.write(b"a part of " + self.rfile.readline())
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.close()


class Threads(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 1024


class Threads6(Threads):
    address_family = socket.AF_INET6


def begin(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    directory = Path(sys.argv[1])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for command in (["ip", "link", "set", "lo", "up"], *(["ip", "address", "add", address, "dev", "lo"]
                    for address in (PUBLIC + "/32", PRIVATE + "/32", PUBLIC6 + "/128"))):
        subprocess.run(command, check=True)
    (directory / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (directory / "hosts").write_text("127.0.0.1 localhost\n")
    for name in ("resolv.conf", "hosts"):
        subprocess.run(["mount", "--bind", directory / name, os.path.realpath(f"/etc/{name}")], check=True)
    threading.Thread(target=serve_names, args=[Log(directory / "names.log")], daemon=True).start()

    log = Log(directory / "web.log")
    web = str(directory / "web")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    for host, port in ((PUBLIC, 80), (PUBLIC, 443), (PUBLIC, 8080), (PRIVATE, 80), ("127.0.0.1", 8080), ("0.0.0.0", 8088)):
        server = Threads((host, port), web_handler(web, log, f"{host}:{port}"))
        if port == 443:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        begin(server)
    begin(Threads6((PUBLIC6, 80), web_handler(web, log, f"[{PUBLIC6}]:80")))
    begin(Threads((PUBLIC, 5432), Shouting))
    begin(Threads((PUBLIC, 5433), BreakingOff))
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
