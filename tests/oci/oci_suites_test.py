"""The suite of the linux backend once more, with an OCI runtime in its place: what both share is one list
of tests. And the oci backend as the command line has it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUNTIMES = ("crun", "runc", "runsc")
RUNGS = {"runsc": "hardened_container"}
# Seconds; a bound on a hang, not a budget. Together with what ran before it stays below the bound of scripts/run_tests,
# which ends all without a report.
TIME = 600

# Tests of how the linux backend itself starts sandboxes, or of what only its own texts say.
ONLY_LINUX = (
    "Keeper.*", "GuestProgram.*", "LinuxSpareAgent.*",
    # What is said of a full disk, or of no descriptor left, are the runtime's own words.
    "LinuxLifecycle.RunningOutOfDescriptorsSaysThatDisposingGivesThemBack",
    "LinuxCrash.AFullStateDirectoryIsANamedRefusalAtEveryStepAndLeavesNothing",
    # It times how long keepers stay, and is as slow as the runtime that it kills.
    "LinuxLifecycle.AKeeperEndsWhatItsKilledHostHadNotPublished",
    # Its window is shorter than asking a runtime for its version takes.
    "LinuxCrash.AnAcquireThatRacesAnIdleEndGetsALivingSandbox",
)
# What happens within a call is the guest program's work, the same whoever started it, and what the host keeps
# ready is the host's: once with the linux backend is enough for what takes long and asks nothing of a runtime.
OF_THE_GUEST = (
    "LinuxProcesses.ADeepTreeIsRemovedWithItsCall", "LinuxProcesses.TheLastBytesArriveWhenTheProgramEnds",
    "LinuxLimits.ProcessorSeconds*", "LinuxWithoutControlGroups.UnstatedProcessorSecondsBoundEachProcess",
    "LinuxImages.VeryMuchInEtcIsShownAllTheSame", "LinuxImages.AnImageOfTooManyDirectoriesAtItsTopIsRefused",
    "WarmPool*", "LinuxSnapshots.*", "HostTools.*", "HostToolCut.*", "LinuxOverAStream.*", "LinuxOtherClock.*",
)
# With crun the rest. With runc, whose configuration is the same, what depends on how it starts and ends a container.
PART = {"runc": ("LinuxLifecycle.*", "LinuxCrash.*", "LinuxConfinement.*", "LinuxLimits.*", "LinuxImages.*")}
# It makes a group of its own under every controller, and starts nothing where one cannot be written.
NOT_OVER = {"runc": ("LinuxLimits.WhereAControllerCannotBeWrittenADefaultRunsAndAStatedLimitIsRefused",)}
LEFT_OUT = ("this user may make no control groups", "needs root", "the sanitizer")


class OciSuites(unittest.TestCase):
    def runtime(self, name):
        if not shutil.which(name, path=PATHS):
            self.skipTest(f"the OCI runtime {name} is not installed")
        return name

    def run_suite(self, runtime, least):
        environment = {"PATH": "/usr/bin:/bin", "CASEMATE_TEST_OCI_RUNTIME": self.runtime(runtime)}
        taken = ":".join(PART.get(runtime, ("*",)))
        left_out = ":".join(ONLY_LINUX + OF_THE_GUEST + NOT_OVER.get(runtime, ()))
        result = subprocess.run([BUILD / "test_programs/linux_sandbox_test", f"--gtest_filter={taken}-{left_out}"],
                                cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=TIME)
        failures = re.findall(r"(?m)^\S.*: Failure\n(?:.*\n){1,12}", result.stdout)
        self.assertEqual(result.returncode, 0, "\n".join(failures) + result.stdout[-2000:])
        passed = int(re.search(r"\[  PASSED  \] (\d+) tests?", result.stdout)[1])
        self.assertGreaterEqual(passed, least, result.stdout[-4000:])
        for reason in re.findall(r": Skipped\n(.*)\n", result.stdout):
            self.assertTrue(any(known in reason for known in LEFT_OUT), reason)

    def test_sandboxes_of_crun_are_what_those_of_linux_are(self):
        self.run_suite("crun", 70)

    def test_sandboxes_of_runc_start_and_end_as_those_of_linux_do(self):
        self.run_suite("runc", 60)


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="casemate-oci-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def casemate(self, *words, **environment):
        base = {"PATH": "/usr/bin:/bin", "CASEMATE_STATE_DIR": str(self.dir / "state"), **environment}
        return subprocess.run([BUILD / "casemate", *map(str, words)], cwd="/", env=base, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIME)

    def with_runtime(self, name):
        if not shutil.which(name, path=PATHS):
            self.skipTest(f"the OCI runtime {name} is not installed")
        if name == "runsc" and os.geteuid() != 0:
            self.skipTest("runsc needs root")
        return {"CASEMATE_OCI_RUNTIME": name}

    def test_a_program_runs_in_it_and_leaves_nothing(self):
        program = self.dir / "program.py"
        program.write_text("print(1)")
        for name in RUNTIMES:
            with self.subTest(runtime=name):
                result = self.casemate("run", "--backend", "oci", "--json", program, **self.with_runtime(name))
                record = json.loads(result.stdout)
                self.assertEqual((result.returncode, record["stdout"]), (0, "1\n"), result)
                self.assertEqual((record["sandbox"]["backend"], record["sandbox"]["isolation"]),
                                 ("oci", RUNGS.get(name, "container")))
                for part in ("sandboxes", "new", "trash", "runtime"):
                    place = self.dir / "state-oci" / part
                    self.assertEqual(list(place.iterdir()) if place.exists() else [], [], part)

    def test_backends_and_doctor_name_the_runtime_its_version_and_known_faults(self):
        for name in RUNTIMES:
            with self.subTest(runtime=name):
                environment = self.with_runtime(name)
                backends = {one["name"]: one for one in json.loads(self.casemate("backends", "--json", **environment).stdout)}
                self.assertTrue(backends["oci"]["available"], backends["oci"])
                version = subprocess.run([shutil.which(name, path=PATHS), "--version"], stdout=subprocess.PIPE, text=True)
                self.assertIn(version.stdout.split()[2], backends["oci"]["engine"])
                doctor = {one["name"]: one for one in json.loads(self.casemate("doctor", "--json", **environment).stdout)}
                self.assertEqual(doctor["oci"]["status"], "ok", doctor["oci"])
                # gVisor shows no namespace of control groups.
                boundary = "weaker" if name == "runsc" else "ok"
                self.assertEqual(doctor["oci: boundary"]["status"], boundary, doctor["oci: boundary"])
                self.assertIn(RUNGS.get(name, "container"), doctor["oci: boundary"]["found"])
                if name == "runc" and version.stdout.split()[2].startswith("1.1."):
                    self.assertIn("CVE-2025-31133", doctor["oci"]["found"])

    def test_without_a_runtime_it_says_so_and_nothing_is_missing(self):
        environment = {"CASEMATE_OCI_RUNTIME": "no-such-runtime"}
        backends = {one["name"]: one for one in json.loads(self.casemate("backends", "--json", **environment).stdout)}
        self.assertFalse(backends["oci"]["available"])
        self.assertIn("no-such-runtime", backends["oci"]["reason"])
        program = self.dir / "program.py"
        program.write_text("print(1)")
        result = self.casemate("run", "--backend", "oci", program, **environment)
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        self.assertIn("casemate: error: SandboxUnavailable: ", result.stderr)
        doctor = self.casemate("doctor", "--json", **environment)
        self.assertEqual({one["name"]: one["status"] for one in json.loads(doctor.stdout)}["oci"], "absent")

    def test_it_serves_where_the_linux_backend_comes_first_and_is_not_available(self):
        environment = self.with_runtime("crun")
        (self.dir / "state").mkdir(mode=0o755)  # which linux refuses, and oci's is beside it
        program = self.dir / "program.py"
        program.write_text("print(1)")
        result = self.casemate("run", "--json", program, **environment)
        record = json.loads(result.stdout)
        self.assertEqual((result.returncode, record["stdout"], record["sandbox"]["backend"]), (0, "1\n", "oci"), result)
        named = self.casemate("run", "--backend", "linux", program, **environment)
        self.assertEqual((named.returncode, named.stdout), (125, ""))
        self.assertIn("only a directory of this user's with mode 700", named.stderr)
        server = self.casemate("mcp", **environment)
        self.assertEqual((server.returncode, server.stdout), (0, ""), server)
        self.assertIn("backend oci,", server.stderr)

    def test_a_runtime_that_does_not_work_is_to_be_mended(self):
        broken = self.dir / "broken"
        broken.write_text("#!/bin/sh\nexit 3\n")
        broken.chmod(0o755)
        doctor = self.casemate("doctor", "--json", CASEMATE_OCI_RUNTIME=str(broken))
        self.assertEqual({one["name"]: one["status"] for one in json.loads(doctor.stdout)}["oci"], "missing")

    def test_looking_for_sandboxes_makes_no_directory(self):
        self.assertEqual(self.casemate("ls").returncode, 0)
        self.assertEqual(self.casemate("rm", "--all").returncode, 0)
        self.assertEqual([path.name for path in self.dir.iterdir() if path.name.startswith("state")], [])

    def test_the_directory_of_the_environment_may_end_in_a_slash_and_is_not_relative(self):
        program = self.dir / "program.py"
        program.write_text("print(1)")
        environment = {**self.with_runtime("crun"), "CASEMATE_STATE_DIR": str(self.dir / "state") + "/"}
        result = self.casemate("run", "--backend", "oci", program, **environment)
        self.assertEqual((result.returncode, result.stdout), (0, "1\n"), result)
        self.assertTrue((self.dir / "state-oci" / "sandboxes").is_dir())
        self.assertFalse((self.dir / "state").exists())
        relative = environment | {"CASEMATE_STATE_DIR": "state"}
        refused = self.casemate("run", "--backend", "oci", program, **relative)
        self.assertEqual(refused.returncode, 125, refused)
        self.assertIn("ConfigInvalid: CASEMATE_STATE_DIR is 'state', a relative path", refused.stderr)

    def test_every_probe_of_the_conformance_suite_passes(self):
        for name in RUNTIMES:
            with self.subTest(runtime=name):
                result = self.casemate("conformance", "--backend", "oci", "--json", **self.with_runtime(name))
                failed = [one for one in json.loads(result.stdout) if one["status"] == "failed"]
                self.assertEqual((result.returncode, failed), (0, []))

    def test_the_file_may_name_the_runtime(self):
        config = self.dir / "casemate.toml"
        config.write_text('[backends.oci]\nruntime = "no-such-runtime"\n')
        result = self.casemate("backends", "--json", "--config", config)
        record = {one["name"]: one for one in json.loads(result.stdout)}["oci"]
        self.assertIn("no-such-runtime", record["reason"])


if __name__ == "__main__":
    unittest.main()
