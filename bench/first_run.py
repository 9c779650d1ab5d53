#!/usr/bin/python3
"""First run: whole processes that print 1 from Python, ours beside bubblewrap, interleaved.

    bench/first_run.py [ROUNDS]      default 200; CASEMATE=path names the program

Every row is started in turn, once a round, so that a busy moment of the machine meets all of them.
Times are wall clock from start to reaped end, in milliseconds. Ratios count; absolute times do not
travel to another machine.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"


def rows(program):
    casemate = os.environ.get("CASEMATE", str(ROOT / "build/release/casemate"))
    yield "python3", [PYTHON, "-c", "print(1)"]
    yield "casemate run", [casemate, "run", program]
    bwrap = shutil.which("bwrap")
    if bwrap:
        yield "bwrap python3", [
            bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
            "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
            "--symlink", "usr/lib64", "/lib64", "--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache",
            "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--cap-drop", "ALL",
            PYTHON, "-c", "print(1)"]
    else:
        print("bwrap is not installed (scripts/bootstrap engines): left out")


def once(argv):
    start = time.perf_counter_ns()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)
    took = (time.perf_counter_ns() - start) / 1e6
    if done.returncode != 0 or done.stdout != b"1\n":
        sys.exit(f"{argv[0]}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    return took


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "program.py"
        program.write_text("print(1)\n")
        table = list(rows(str(program)))
        times = {name: [] for name, _ in table}
        for name, argv in table:
            once(argv)  # warms the caches
        for _ in range(rounds):
            for name, argv in table:
                times[name].append(once(argv))
    base = statistics.median(times["python3"])
    print(f"whole processes, print(1), medians of {rounds} interleaved rounds")
    for name, argv in table:
        values = sorted(times[name])
        median = statistics.median(values)
        print(f"  {name:14} {median:8.2f} ms   p95 {values[int(len(values) * 0.95)]:8.2f} ms"
              f"   python3 + {median - base:6.2f} ms")


if __name__ == "__main__":
    main()
