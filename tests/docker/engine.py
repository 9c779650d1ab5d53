#!/usr/bin/python3
"""engine.py docker|podman|image BUILD_DIR: a container engine of a test's own

Starts the engine with roots of its own in a network namespace without anything but loopback, loads
an image `casemate-test` made of Debian packages (once, beside BUILD_DIR, for all builds there), and
prints one line:

    ready unix:///PATH     of `image`, which only makes the image: ready PATH
    missing WHY            a program or the rights are not there: a reason to skip
    failed WHY             all is there, and it does not run: an error

Stops it when standard input ends, though it be by a signal that ends its caller's process group, and
removes all that it made. Only processes that it started are ended, by their ids.
"""

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMAGE = "casemate-test"
PATIENCE = 120  # seconds; a bound on a hang, not a budget


class Missing(Exception):
    pass


class Failed(Exception):
    pass


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("engine", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def leave_callers_group():
    """Who ends a test program ends all of its process group: what clears up after it is not in it."""
    if os.getpgrp() != os.getpid():
        os.setsid()


def ask(path, method, target, body=None, kind="application/x-tar"):
    with contextlib.closing(Connection(path)) as connection:
        connection.request(method, target, body=body, headers={"Content-Type": kind})
        reply = connection.getresponse()
        return reply.status, reply.read()


def image_tar(build_dir):
    """One for all test programs of all builds."""
    folder = Path(build_dir).absolute().parent / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    tar = folder / "debian.tar"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tar.exists():
            if not shutil.which("mmdebstrap"):
                raise Missing("mmdebstrap is not installed (scripts/bootstrap engines)")
            partial = folder / "partial.tar"
            without = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"]
            for _ in range(2):  # a mirror may fail once
                made = subprocess.run(
                    ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,tzdata",
                     '--aptopt=Acquire::Retries "3"', *[f"--dpkgopt=path-exclude={path}" for path in without],
                     "--customize-hook=rm -rf $1/var/lib/apt/lists $1/var/cache/apt", "bookworm", partial],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                if made.returncode == 0:
                    break
            else:
                raise Failed("mmdebstrap cannot make an image: " + made.stderr.strip()[-300:].replace("\n", " "))
            partial.rename(tar)
    return tar


def docker_command(root):
    if not shutil.which("dockerd"):
        raise Missing("dockerd is not installed (scripts/bootstrap engines)")
    words = ["dockerd", "--host", f"unix://{root}/engine.sock", "--data-root", f"{root}/data",
             "--exec-root", f"{root}/exec", "--pidfile", f"{root}/engine.pid", "--bridge", "none",
             "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
             "--containerd-namespace", "casemate-test", "--containerd-plugins-namespace", "casemate-test-plugins",
             "--cgroup-parent", f"/{root.name}", "--config-file", f"{root}/daemon.json"]
    runsc = shutil.which("runsc")
    # One that is what it is called, one that is not, and one that is until a file `fallen` is there.
    runtimes = {"hardened": {"path": "runc"}}
    if runsc:
        own_kernel = ["--network=none", "--platform=systrap"]
        runtimes["runsc"] = {"path": runsc, "runtimeArgs": own_kernel}
        fickle = root / "fickle"
        fickle.write_text(f'#!/bin/sh\n[ -e {root}/fallen ] && exec runc "$@"\nexec {runsc} {" ".join(own_kernel)} "$@"\n')
        fickle.chmod(0o755)
        runtimes["fickle"] = {"path": str(fickle)}
    (root / "daemon.json").write_text(json.dumps({"runtimes": runtimes}))
    return ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *words], {}


def podman_command(root):
    if not shutil.which("podman"):
        raise Missing("podman is not installed (scripts/bootstrap engines)")
    (root / "containers.conf").write_text(f"""
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{root}/tmp"
[network]
network_config_dir = "{root}/networks"
""")
    (root / "storage.conf").write_text(f"""
[storage]
driver = "overlay"
graphroot = "{root}/data"
runroot = "{root}/exec"
""")
    words = ["podman", "system", "service", "--time=0", f"unix://{root}/engine.sock"]
    # A machine that mounts both versions of control groups is one that crun refuses.
    prepare = 'ip link set lo up && { umount /sys/fs/cgroup/unified 2>/dev/null || true; } && exec "$@"'
    environment = {"CONTAINERS_CONF": f"{root}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{root}/storage.conf",
                   "TMPDIR": f"{root}/tmp"}
    (root / "tmp").mkdir()
    return ["unshare", "-nm", "--propagation", "private", "sh", "-c", prepare, "sh", *words], environment


def await_answer(process, path, log):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise Failed("it ended at once: " + " ".join(log.read_text(errors="replace").split())[-400:])
        try:
            if ask(path, "GET", "/version")[0] == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.05)  # the engine tells nobody when it listens
    raise Failed("it did not answer")


def load_image(path, tar):
    with open(tar, "rb") as file:
        status, said = ask(path, "POST", f"/v1.41/images/create?fromSrc=-&repo={IMAGE}", file)
    if status != 200 or b'"error"' in said:
        raise Failed(f"it does not load an image: {said[-300:]!r}")


def below(root):
    with open("/proc/self/mountinfo") as mounts:
        points = [line.split()[4] for line in mounts]
    return [point for point in reversed(points) if point.startswith(f"{root}/")]


def groups_of(root):
    """Below Podman's own `libpod_parent`, which all of its services share, only what its containers had."""
    names = [root.name]
    for folder in root.glob("data/overlay-containers/*/"):
        names += [f"libpod_parent/{kind}-{folder.name}" for kind in ("libpod", "libpod-conmon")]
    hierarchies = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")]
    return [each / name for each in hierarchies for name in names]


def remove(root):
    groups = groups_of(root)
    for point in below(root):
        subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL)
    shutil.rmtree(root, ignore_errors=True)
    for group in groups:
        for folder in sorted((each for each in group.glob("**") if each.is_dir()), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                pass  # in use


def leftovers(root):
    """What an engine started and left: shims that missed the end of a program, what clears up after a container. Its
    root is in their words; the address alone is in those of clients."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if int(folder.name) != os.getpid() and any(
                f"{root}/".encode() in word and not word.endswith(b"/engine.sock") for word in words):
            found.append(int(folder.name))
    return found


def end_leftovers(root):
    """Nothing writes below the root any more when this returns."""
    until = time.monotonic() + PATIENCE
    while (left := leftovers(root)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def stop(process, path):
    """Its containers first, by their ids, so that no process of theirs is left."""
    try:
        for each in json.loads(ask(path, "GET", "/v1.41/containers/json?all=1")[1]):
            ask(path, "DELETE", f"/v1.41/containers/{each['Id']}?force=1&v=1")
    except (OSError, ValueError, http.client.HTTPException):
        pass
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def started(kind, build_dir):
    """For tests: the address of one that runs meanwhile. Raises Missing and Failed with the reason."""
    running = subprocess.Popen([sys.executable, __file__, kind, build_dir], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        how, _, rest = running.stdout.readline().strip().partition(" ")
        if how != "ready":
            raise (Missing if how == "missing" else Failed)(rest)
        yield rest
    finally:
        running.communicate()


def main():
    kind, build_dir = sys.argv[1:]
    if kind == "image":
        try:
            print("ready", image_tar(build_dir))
        except (Missing, Failed) as why:
            sys.exit(f"engine.py: {why}")
        return
    leave_callers_group()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # A path that a socket's address has room for, on a file system that an overlay may lie on.
    root = Path(tempfile.mkdtemp(prefix="casemate-engine-", dir="/var/tmp"))
    process = None
    path = f"{root}/engine.sock"
    try:
        if os.geteuid() != 0:
            raise Missing("engines of a test's own are started by root")
        words, environment = (docker_command if kind == "docker" else podman_command)(root)
        tar = image_tar(build_dir)
        log = root / "log"
        with open(log, "w") as out:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=root,
                                       env={**os.environ, **environment}, start_new_session=True)
        await_answer(process, path, log)
        load_image(path, tar)
        print("ready unix://" + path, flush=True)
        sys.stdin.read()
    except Missing as missing:
        print("missing", f"{kind}: {missing}", flush=True)
    except (Failed, OSError, http.client.HTTPException) as failed:
        print("failed", f"{kind}: {failed}", flush=True)
    finally:
        if process is not None:
            stop(process, path)
            end_leftovers(root)
        remove(root)


if __name__ == "__main__":
    main()
