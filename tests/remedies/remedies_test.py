"""What doctor prints is run as it is printed, with the machine's own package tools, until the row is green.

On a root of the test's own: this machine's files under a layer in memory, in namespaces without a network. There a
package is removed, and comes from those that tests/remedies/packages fetched.
"""

import os
import re
import shlex
import shutil
import sys
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cases"))
from harness import PATIENCE, PROGRAM, Case  # noqa: E402
from images_test import Image, tar_file, tar_of  # noqa: E402
from private_host import Machine  # noqa: E402

BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))
PACKAGES = BUILD.parent / "engines/packages"
INSTALL = "apt-get update && apt-get install -y "


class Host(Machine):
    """Nothing of a package of these names is there, and whatever is done stays in it."""

    by_root = False

    def __init__(self, test, *removed):
        super().__init__(test, "--pid", "--fork", "--kill-child", "--net", "--ipc")
        place = self.dir / "place"
        place.mkdir()
        (self.dir / "packages").mkdir()
        self.root(f"mount --bind {PACKAGES} {self.dir}/packages")
        shutil.copy(Path(__file__).with_name("layers.sh"), self.dir)
        status, out, err = self.run(f"{self.dir}/layers.sh {place} {self.dir} {' '.join(removed)}")
        if status == 77:
            test.skipTest(f"the kernel makes no root of layers here: {err.strip()}")
        test.assertEqual(status, 0, out + err)
        # None is known before somebody asks for a list of them, and then only these.
        self.root("ip link set lo up && rm -rf /etc/apt/sources.list.d/* && "
                  f"echo 'deb [trusted=yes] file:{self.dir}/packages ./' >/etc/apt/sources.list")
        self.name = "doctor-test"
        self.home = f"/home/{self.name}"
        self.root(f"echo {self.name}:x:{self.user}:{self.user}::{self.home}:/bin/sh >>/etc/passwd && "
                  f"echo {self.name}:x:{self.user}: >>/etc/group && install -d -o {self.user} -g {self.user} {self.home}")

    def become(self, *words):
        """As by a new login: groups that the user was put into count."""
        if self.by_root:
            return " ".join(["env", f"CASEMATE_STATE_DIR={self.dir}/state", "CASEMATE_MICROVM_ACCELERATOR=tcg", *map(str, words)])
        return super().become(f"HOME={self.home}", "CASEMATE_MICROVM_ACCELERATOR=tcg", *words).replace(
            "--clear-groups", "--init-groups")


@unittest.skipIf(os.geteuid() != 0, "only root can make a root of layers")
@unittest.skipUnless(PACKAGES.is_dir(), "no packages to install were fetched (tests/remedies/packages does)")
class Remedies(Case):
    def mend(self, host, row, *commands, then=lambda command: None):
        """These are printed for the row, each when the one before was applied; after the last it is ok."""
        for command in commands:
            found = host.doctor()[1][row]
            self.assertNotEqual(found["status"], "ok", found)
            self.assertEqual(found["fix"], command)
            host.root(found["fix"] if "as root: " in found["found"] else host.become("sh", "-c", shlex.quote(found["fix"])))
            then(command)
        found = host.doctor()[1]
        self.assertEqual(found[row]["status"], "ok", found[row])
        self.assertEqual(found[row]["fix"], None)
        return found

    def test_user_ids(self):
        host = Host(self, "uidmap")
        ids = "100000-165535"
        host.root("echo >/etc/subuid && echo >/etc/subgid")
        found = self.mend(host, "user ids", INSTALL + "uidmap", f"usermod --add-subuids {ids} --add-subgids {ids} {host.name}")
        self.assertIn("user ids of their own", found["linux"]["found"])


    def test_a_runtime_of_containers(self):
        host = Host(self, "crun", "runc", "runsc")
        host.root("echo doctor-test:100000:65536 >/etc/subuid && echo doctor-test:100000:65536 >/etc/subgid")
        found = self.mend(host, "oci", INSTALL + "crun")
        self.assertEqual(found["oci: boundary"]["status"], "ok", found)

    def test_an_engine(self):
        """Its package starts it where the machine has an init; here somebody has to, which is the second command."""
        host = Host(self, "docker.io")

        def then(command):
            if command.startswith(INSTALL):
                # Limits that are higher than those of who runs the tests; of a network of its own nothing is asked.
                host.root("{ echo 'ulimit() { :; }'; echo 'DOCKER_OPTS=\"--bridge none --iptables=false --ip6tables=false "
                          "--ip-forward=false --ip-masq=false\"'; } >>/etc/default/docker")
            if command.startswith("service"):
                self.await_engine(host)

        self.mend(host, "docker", INSTALL + "docker.io", "service docker start", f"usermod -aG docker {host.name}",
                  then=then)

    def await_engine(self, host):
        """It tells nobody when it listens."""
        until = time.monotonic() + PATIENCE
        while host.run("docker version")[0] != 0:
            self.assertLess(time.monotonic(), until, host.run("cat /var/log/docker.log")[1][-4000:])
            time.sleep(0.05)

    def test_machines(self):
        host = Host(self, "qemu-system-x86", "squashfs-tools")
        kernel = ("cd $(mktemp -d) && apt-get download $(apt-cache depends linux-image-cloud-amd64 | sed -n "
                  "'s/.*Depends: //p') && dpkg-deb -x linux-image-*-cloud-amd64_*.deb ")
        self.mend(host, "microvm", INSTALL + "--no-install-recommends qemu-system-x86", INSTALL + "squashfs-tools",
                  kernel + f"{host.home}/.local/share/casemate/kernel")
        # As where those were installed long ago, and the lists thrown away.
        host.by_root = True
        host.root("rm -r /var/lib/apt/lists")
        self.mend(host, "microvm", "apt-get update && " + kernel + "/var/lib/casemate/kernel")

    def test_an_interpreter(self):
        host = Host(self, "python3", "python3-minimal")
        self.assertEqual(host.doctor()[0], 1)
        self.mend(host, "linux: python3", INSTALL + "python3")
        self.assertEqual(host.doctor()[0], 0)

    def test_what_fetches_images_of_a_registry(self):
        host = Host(self, "skopeo")
        registry = self.dir / "machine" / "registry"
        Image([tar_of(lambda tar: tar_file(tar, "mark", b"fetched"))]).write_layout(registry)
        shutil.copy(Path(__file__).with_name("registry.py"), host.dir)
        address = host.root(f"/usr/bin/python3 {host.dir}/registry.py {registry}").strip()
        # It has no certificate.
        host.root("mkdir -p /etc/containers/registries.conf.d && printf "
                  f"'[[registry]]\\nlocation = \"{address}\"\\ninsecure = true\\n' >/etc/containers/registries.conf.d/test.conf")
        bring = ("image", "import", f"{address}/tiny:latest")
        status, out, err = host.casemate(*bring)
        self.assertEqual((status, out), (125, ""), err)
        host.root(re.search(r"as root: (.*?)\)", err)[1])
        status, _, err = host.casemate(*bring)
        self.assertEqual((status, err), (0, ""))
        self.assertIn(f"{address}/tiny:latest", host.casemate("image", "ls")[1])


if __name__ == "__main__":
    unittest.main()
