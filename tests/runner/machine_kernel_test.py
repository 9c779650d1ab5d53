"""scripts/machine_kernel with a mirror of the test's own, in place of apt."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the lists of packages name, and what the mirror has, stand in files; `update` brings the lists up to date.
STUBS = {
    "apt-cache": '[ -e "$MIRROR/lists" ] && echo "  Depends: $(cat "$MIRROR/lists")"\n',
    "apt-get": '''
case " $* " in
    *" update "*) cp "$MIRROR/newest" "$MIRROR/lists" ;;
    *" download "*) [ "${*: -1}" = "$(cat "$MIRROR/newest")" ] && echo "${*: -1}" >"${*: -1}.deb" ;;
esac
''',
    "dpkg-deb": 'mkdir -p "$3/boot" && cp "$2" "$3/boot/vmlinuz-$(cat "$2")"\n',
}


class MachineKernel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        for name, text in STUBS.items():
            (self.dir / name).write_text("#!/bin/bash\n" + text)
            (self.dir / name).chmod(0o755)
        (self.dir / "newest").write_text("linux-2")

    def bring(self):
        done = subprocess.run([ROOT / "scripts/machine_kernel", self.dir / "kernel"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={"PATH": f"{self.dir}:/usr/bin:/bin", "MIRROR": str(self.dir),
                                                             "TMPDIR": str(self.dir)})
        self.assertEqual(done.returncode, 0, done.stdout)
        return os.listdir(self.dir / "kernel/boot")

    def test_it_brings_the_kernel_that_the_lists_name(self):
        (self.dir / "lists").write_text("linux-2")
        self.assertEqual(self.bring(), ["vmlinuz-linux-2"])

    def test_lists_that_name_a_kernel_the_mirror_no_longer_has_are_brought_up_to_date(self):
        (self.dir / "lists").write_text("linux-1")
        self.assertEqual(self.bring(), ["vmlinuz-linux-2"])

    def test_without_lists_they_are_brought_first(self):
        self.assertEqual(self.bring(), ["vmlinuz-linux-2"])


if __name__ == "__main__":
    unittest.main()
