"""The suites of the linux backend once more, run by a user who is not root and whom nobody knows.

With one user id, as any machine gives it, and with a range of subordinate ids. The latter stands in
files of the test's own, mounted over /etc/passwd, /etc/subuid and /etc/subgid in a mount namespace
of the test's own: the machine's are not touched.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docker"))
import engine  # noqa: E402

BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))
SUITES = BUILD / "test_programs"
SANITIZED = (BUILD / "casemate").exists() and b"__asan_init" in (BUILD / "casemate").read_bytes()
# Root runs each of these under the sanitizers, and this user runs the sandboxes' own suite there.
in_release = unittest.skipIf(SANITIZED, "as this user the release build shows it")
# Of what these tests may be left out for: nothing but what this user cannot have here, or what a
# sanitizer cannot do without itself.
LEFT_OUT = ("this user may make no control groups", "needs root", "the sanitizer")
# Seconds; a bound on a hang, not a budget. Together with what ran before it stays below the bound of scripts/run_tests,
# which ends all without a report.
TIME = 600

# The ids of cases that passed here, and why others may not have been run.
SHOWN, EXCUSED = set(), {}
ID = r"\b[A-Z]{2,4}-\d{2}\b"


def ids_of_suites():
    """{"Suite.Test": ids} of what GoogleTest runs: those in its body and in the comment before it."""
    found = {}
    for path in (each for folder in ("linux", "soak", "docker") for each in (ROOT / "tests" / folder).glob("*_test.cc")):
        text = path.read_text()
        for test in re.finditer(r"(?m)^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", text):
            before = text.rfind("\n}", 0, test.start())
            found[f"{test[1]}.{test[2]}"] = re.findall(ID, text[before + 1:text.find("\n}", test.end())])
    return found


def unknown_user():
    return random.randrange(2_100_000_000, 2_140_000_000)


@unittest.skipIf(os.geteuid() != 0, "only root can become another user; the suites run as this one anyway")
class OrdinaryUser(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="casemate-ordinary-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.dir.chmod(0o755)
        self.user = unknown_user()
        # For each backend's state, whose names begin alike.
        (self.dir / "theirs").mkdir()
        os.chown(self.dir / "theirs", self.user, self.user)
        self.state = f"CASEMATE_STATE_DIR={self.dir}/theirs/state"

    def copy(self, program):
        """Where the user can read it, wherever the build is."""
        copied = self.dir / program.name
        shutil.copy(program, copied)
        copied.chmod(0o755)
        return copied

    def as_user(self, *words):
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups",
                "env", "-i", "PATH=/usr/bin:/bin", *map(str, words)]

    def with_subordinate_ids(self, argv):
        """The argv, run where the user has a name and a range of ids of its own."""
        line = f"casemate-test:x:{self.user}:{self.user}::/nonexistent:/bin/sh\n"
        ranges = f"casemate-test:{random.randrange(2_000_000_000, 2_090_000_000)}:65536\n"
        files = {"passwd": Path("/etc/passwd").read_text() + line, "subuid": ranges, "subgid": ranges}
        mounts = []
        for name, text in files.items():
            if not Path("/etc", name).exists():
                self.skipTest(f"/etc/{name} is not there to be mounted over")
            (self.dir / name).write_text(text)
            mounts.append(f"mount --bind {self.dir}/{name} /etc/{name}")
        return ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$0" "$@"']), *argv]

    def run_argv(self, argv):
        return subprocess.run(argv, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=TIME)

    def run_suite(self, name, least, wrap, only="*", environment=()):
        argv = self.as_user(*environment, self.copy(SUITES / name), f"--gtest_filter={only}")
        result = self.run_argv(wrap(argv))
        failures = re.findall(r"(?m)^\S.*: Failure\n(?:.*\n){1,12}", result.stdout)
        self.assertEqual(result.returncode, 0, "\n".join(failures) + result.stdout[-2000:])
        passed = int(re.search(r"\[  PASSED  \] (\d+) tests?", result.stdout)[1])
        self.note_suite(result.stdout)
        self.assertGreaterEqual(passed, least, result.stdout[-4000:])
        for reason in re.findall(r": Skipped\n(.*)\n", result.stdout):
            self.assertTrue(any(known in reason for known in LEFT_OUT), reason)

    @staticmethod
    def note_suite(said):
        ids = ids_of_suites()
        # Of a test with parameters "Instance/Suite.Test/parameter".
        for name in re.findall(r"(?m)^\[       OK \] (?:\w+/)?(\w+\.\w+)", said):
            SHOWN.update(ids.get(name, ()))

    def identity(self, wrap, *before):
        """What `casemate backends` says of whose ids the sandboxes have."""
        argv = self.as_user(self.state, *before, self.copy(BUILD / "casemate"), "backends")
        result = self.run_argv(wrap(argv))
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("linux: available\n", result.stdout)
        return re.search(r"engine +(.*)", result.stdout)[1]

    def run_cases(self, area, wrap):
        """The command line's cases of an area, from a copy that this user can read."""
        copied = self.dir / "source"
        shutil.rmtree(copied, ignore_errors=True)
        for tests in ("tests/cases", "tests/mcp"):  # the latter has the schemas that messages are held against
            shutil.copytree(ROOT / tests, copied / tests, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "examples", copied / "examples")
        self.copy(BUILD / "casemate")
        argv = self.as_user(f"CASEMATE_BUILD_DIR={self.dir}", "PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3",
                            copied / f"tests/cases/{area}_test.py", "-v")
        result = self.run_argv(wrap(argv))
        self.assertEqual(result.returncode, 0, result.stdout[-8000:])
        self.assertGreater(int(re.search(r"(?m)^Ran (\d+) tests?", result.stdout)[1]), 0)
        for line in re.findall(r"(?m)^(.*) \.\.\. ok$", result.stdout):
            SHOWN.update(re.findall(ID, line))

    @in_release
    def test_with_one_id_the_command_line_is_what_it_is_as_root(self):
        """What needs control groups or a set-up by root is left out, and says so."""
        for area in ("exec", "isolation", "limits", "files_in", "files_out", "names", "command_line", "host", "host_tools",
                     "images", "keep", "mcp", "egress", "conformance", "doctor", "output", "config"):
            with self.subTest(area=area):
                self.run_cases(area, list)

    def test_with_one_id_the_backend_says_so(self):
        self.assertIn("one user id (no range in /etc/subuid and /etc/subgid)", self.identity(list))

    def test_with_a_range_the_backend_uses_it(self):
        self.assertTrue(shutil.which("newuidmap"), "the package uidmap is missing")
        self.assertRegex(self.identity(self.with_subordinate_ids), "user ids of their own$")

    def test_with_a_range_that_cannot_be_used_it_says_why(self):
        # Programs that are root by their file's mode are not, for somebody who may gain no rights.
        found = self.identity(self.with_subordinate_ids, "setpriv", "--no-new-privs")
        self.assertRegex(found, r"one user id \(newgidmap: .*not permitted.*\)$")
        # And so does doctor, who looks at the files too: there the range is.
        argv = self.as_user(self.state, "setpriv", "--no-new-privs", self.copy(BUILD / "casemate"), "doctor")
        said = self.run_argv(self.with_subordinate_ids(argv)).stdout
        self.assertRegex(said, r"(?m)^weaker   user ids: .*one user id .*\(newgidmap: .*not permitted")

    def test_with_one_id_sandboxes_are_what_they_are_as_root(self):
        self.run_suite("linux_sandbox_test", 70, list)

    def in_delegated_groups(self, argv):
        """The argv, run in groups of version 1 that were given to the user, one in each hierarchy."""
        name = f"casemate-test-{self.user}"
        places = [Path("/sys/fs/cgroup", controller, name) for controller in ("memory", "pids", "cpu", "cpuacct")]
        for place in places:
            if not (place.parent / "tasks").exists():
                EXCUSED["RL-04"] = f"{place.parent} is no hierarchy of version 1"
                self.skipTest(EXCUSED["RL-04"])
        self.addCleanup(self.remove_groups, places)
        for place in places:
            place.mkdir()
            for path in (place, *place.iterdir()):
                os.chown(path, self.user, self.user)
        joining = " && ".join(f"echo $$ > {place}/cgroup.procs" for place in places)
        return ["sh", "-c", joining + ' && exec "$0" "$@"', *argv]

    def remove_groups(self, places):
        """Nothing of the sandboxes' is left below them but what they keep for the next, and for a moment a keeper,
        who hears of its host's end and removes groups himself."""
        until = time.monotonic() + 60
        while left := [place for place in places if place.exists()]:
            for below in [below for place in left for below, _, _ in os.walk(place, topdown=False)]:
                try:
                    os.rmdir(below)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    self.assertLess(time.monotonic(), until, error)
            time.sleep(0.005)

    def test_in_groups_of_version_1_that_were_given_to_it_memory_and_processors_are_held(self):
        """RL-06: the controllers of an ordinary user"""
        argv = self.in_delegated_groups(self.as_user(self.copy(SUITES / "linux_sandbox_test"), "--gtest_filter=LinuxLimits.*"))
        result = self.run_argv(argv)
        self.assertEqual(result.returncode, 0, result.stdout[-4000:])
        self.assertNotIn("this user may make no control groups", result.stdout)
        self.assertGreater(int(re.search(r"\[  PASSED  \] (\d+) tests?", result.stdout)[1]), 10)
        self.note_suite(result.stdout)

    @in_release
    def test_in_groups_that_were_given_to_it_the_command_line_is_what_it_is_as_root(self):
        joined = self.in_delegated_groups([])
        for area in ("limits", "exec", "keep"):
            with self.subTest(area=area):
                self.run_cases(area, lambda argv: [*joined, *argv])

    @unittest.skipIf(SANITIZED, "what runs in an engine's containers is never sanitized")
    def test_who_may_talk_to_an_engine_needs_no_more_for_its_sandboxes(self):
        """LC-06, LC-08"""
        try:
            address = self.enterContext(engine.started("docker", BUILD))
        except engine.Missing as missing:
            EXCUSED["LC-06"] = str(missing)
            self.skipTest(str(missing))
        path = Path(address.removeprefix("unix://"))
        path.parent.chmod(0o711)
        os.chown(path, self.user, -1)
        # Another engine than the one that runs is no matter of this user.
        self.run_suite("docker_sandbox_test", 10, list, only="*/DockerLifecycle.*/docker:*/DockerKill.*/docker-"
                       "*.AnotherEnginesSweepLeavesWhatLives/*",
                       environment=[f"CASEMATE_TEST_DOCKER={address}"])

    @in_release
    def test_with_one_id_the_seam_is_what_it_is_as_root(self):
        self.run_suite("seam_test", 40, list, only="*/linux")

    @in_release
    def test_the_hosts_side_of_egress_is_what_it_is_as_root(self):
        self.run_suite("egress_gateway_test", 35, list)

    @staticmethod
    def in_own_namespaces(argv):
        """The argv, where every socket and every mount is its own or a child's."""
        return ["unshare", "--net", "--mount", "--propagation", "private", *argv]

    @in_release
    def test_with_one_id_nothing_survives_a_kill(self):
        """LC-04"""
        self.run_suite("soak_test", 16, self.in_own_namespaces, environment=["CASEMATE_TEST_OWN_NAMESPACES=1"])

    def test_with_a_range_sandboxes_are_what_they_are_as_root(self):
        self.run_suite("linux_sandbox_test", 70, self.with_subordinate_ids)

    @in_release
    def test_with_a_range_containers_of_a_runtime_are_what_they_are_as_root(self):
        for runtime in ("crun", "runc"):
            with self.subTest(runtime=runtime):
                if not shutil.which(runtime, path=os.environ["PATH"] + ":/usr/sbin"):
                    self.skipTest(f"the OCI runtime {runtime} is not installed")
                self.run_suite("linux_sandbox_test", 20, self.with_subordinate_ids,
                               # The deep tree is the guest program's work, whoever started it, and takes long.
                               only="LinuxConfinement.*:LinuxProcesses.*-LinuxProcesses.ADeepTreeIsRemovedWithItsCall",
                               environment=[f"CASEMATE_TEST_OCI_RUNTIME={runtime}"])

    def test_a_runtime_leaves_no_group_of_version_2_that_it_made_by_its_own_choice(self):
        """runc's, called as the sandbox, beside the group that it was started in."""
        if not shutil.which("runc", path=os.environ["PATH"] + ":/usr/sbin"):
            self.skipTest("the OCI runtime runc is not installed")
        tree = next((each for each in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
                     if (each / "cgroup.procs").exists()), None)
        if tree is None:
            self.skipTest("no control groups of version 2 are mounted here")
        given = tree / f"casemate-test-{self.user}"
        self.addCleanup(self.remove_groups, [given])
        (given / "inner").mkdir(parents=True)
        for path in (given, *given.rglob("*")):
            os.chown(path, self.user, self.user)
        (self.dir / "program.py").write_text("print(1)")
        argv = self.as_user(self.state, "CASEMATE_OCI_RUNTIME=runc", self.copy(BUILD / "casemate"), "run", "--backend",
                            "oci", self.dir / "program.py")
        # As a machine has it whose groups are all of version 2.
        only = (f"echo $$ > {given}/inner/cgroup.procs && umount -l /sys/fs/cgroup && "
                'mount -t cgroup2 none /sys/fs/cgroup && exec "$0" "$@"')
        result = self.run_argv(self.with_subordinate_ids(["sh", "-c", only, *argv]))
        self.assertEqual((result.returncode, result.stdout), (0, "1\n"))
        # The backend's own root of its groups is there for the next.
        left = [each.name for each in given.iterdir() if each.is_dir()]
        self.assertEqual(sorted(left), ["casemate", "inner"])

    @in_release
    def test_with_a_range_the_seam_is_what_it_is_as_root(self):
        self.run_suite("seam_test", 40, self.with_subordinate_ids, only="*/linux")


@unittest.skipIf(SANITIZED, "the release build shows it; a sanitizer leaves some out")
class TheCases(unittest.TestCase):
    """After the above, by its name."""

    def test_of_isolation_limits_and_lifecycle_are_all_shown_by_an_ordinary_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user; the suites run as this one anyway")
        listed = (ROOT / "tests/coverage/cases.txt").read_text()
        wanted = set(re.findall(r"(?m)^((?:LC|RL|ISO)-\d{2})$", listed))
        self.assertGreater(len(wanted), 20)
        left = wanted - SHOWN
        self.assertEqual(left - set(EXCUSED), set())
        if left:
            self.skipTest("; ".join(f"{case}: {EXCUSED[case]}" for case in sorted(left)))


if __name__ == "__main__":
    unittest.main()
