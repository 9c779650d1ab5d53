"""Asks a server with a protocol of its own, as database drivers do: they open a socket and know nothing
of proxies. HOST PORT QUERY; each line that is sent is answered by one.

    casemate run --allow db.example.org:5432 examples/egress_query.py -- db.example.org 5432 'select 1'
"""

import socket
import sys

host, port, query = sys.argv[1:]
# The name resolves to an address inside the sandbox, at which a door to the host listens.
with socket.create_connection((host, int(port)), timeout=30) as connection:
    connection.sendall(query.encode() + b"\n")
    print(connection.makefile().readline(), end="")
