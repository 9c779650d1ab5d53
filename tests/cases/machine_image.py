"""An image for virtual machines: this machine's python3 whole, a shell and the commands of coreutils.
A machine shares no files with the host, so there is no image `host` for it."""

import glob
import os
import shutil
import subprocess

from images_test import libraries_of, make_root


def make_machine_root(root):
    make_root(root)

    def put(path):
        # On a merged system /lib is in /usr, and so it is in here.
        target = root / (path if path.startswith("/usr/") else "/usr" + path)[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(path, target)

    listed = subprocess.check_output(["dpkg-query", "-L", "coreutils"], text=True).split()
    programs = {os.path.basename(path) for path in listed if "/bin/" in path}
    for program in sorted(programs):
        path = f"/usr/bin/{program}"
        for needed in (path, *libraries_of(path)):
            put(needed)
    version = os.path.basename(os.path.realpath("/usr/bin/python3"))
    library = f"/usr/lib/{version}"
    for module in glob.glob(f"{library}/lib-dynload/*.so"):
        for needed in libraries_of(module):
            put(needed)
    for package in ("asyncio", "multiprocessing", "unittest"):
        shutil.copytree(f"{library}/{package}", root / library[1:] / package, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))
    # Names in UTF-8, and what the probes ask of time zones.
    shutil.copytree("/usr/lib/locale/C.utf8", root / "usr/lib/locale/C.utf8")
    shutil.copytree("/usr/share/zoneinfo", root / "usr/share/zoneinfo", symlinks=True,
                    ignore=shutil.ignore_patterns("right", "posix"))
