#!/usr/bin/python3
"""tls_relay.py SOCKET: an engine's Unix socket behind TLS, as on another machine

Makes an authority, a server's and a client's certificate in a directory of its own, listens on a port
of loopback for clients with such a certificate, and prints one line:

    ready tcp://127.0.0.1:PORT DIRECTORY     DIRECTORY as in DOCKER_CERT_PATH
    missing WHY

Ends when standard input ends.
"""

import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from engine import leave_callers_group


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def make_certificates(folder):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2,
            "-subj", "/CN=casemate test authority", "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    for name, subject, extra in (("server-", "engine", "subjectAltName=IP:127.0.0.1"),
                                 ("", "client", "extendedKeyUsage=clientAuth")):
        (folder / "extra").write_text(extra)
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={subject}",
                "-keyout", folder / f"{name}key.pem", "-out", folder / "request")
        openssl("x509", "-req", "-in", folder / "request", "-days", 2, "-CA", folder / "ca.pem",
                "-CAkey", folder / "ca.key", "-CAcreateserial", "-extfile", folder / "extra",
                "-out", folder / f"{name}cert.pem")


def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    # Both ways: who asks has nothing to say after an end.
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(connection, context, path):
    try:
        near = context.wrap_socket(connection, server_side=True)
    except OSError:
        connection.close()
        return
    far = socket.socket(socket.AF_UNIX)
    far.connect(path)
    back = threading.Thread(target=copy, args=(far, near), daemon=True)
    back.start()
    copy(near, far)
    back.join()
    near.close()
    far.close()


def accept(listener, context, path):
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(connection, context, path), daemon=True).start()


def main():
    leave_callers_group()
    if not shutil.which("openssl"):
        print("missing openssl is not installed", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="casemate-tls-") as name:
        folder = Path(name)
        make_certificates(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server-cert.pem", folder / "server-key.pem")
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=accept, args=(listener, context, sys.argv[1]), daemon=True).start()
        print(f"ready tcp://127.0.0.1:{listener.getsockname()[1]} {folder}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
