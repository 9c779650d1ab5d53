"""A registry of images with one in it, on loopback: registry.py LAYOUT

LAYOUT is an OCI layout with one manifest, which any name and tag has. Prints its address and serves until the end of
its process namespace.
"""

import http.server
import json
import os
import sys
from pathlib import Path

LAYOUT = Path(sys.argv[1])
MANIFEST = json.loads((LAYOUT / "index.json").read_text())["manifests"][0]


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        kind, _, wanted = self.path.rpartition("/")
        content, media = b"{}", "application/json"
        if kind.endswith("/manifests"):
            wanted, media = MANIFEST["digest"], MANIFEST["mediaType"]
        if kind.endswith(("/manifests", "/blobs")):
            content = (LAYOUT / "blobs" / wanted.replace(":", "/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Docker-Content-Digest", wanted)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
print(f"127.0.0.1:{server.server_port}", flush=True)
if os.fork() == 0:
    # Nobody waits for the end of its output.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    server.serve_forever()
