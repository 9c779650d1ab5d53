"""scripts/conformance_table says of each subject what its probes gave, or why there is nothing to try."""

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
TABLE = ROOT / "scripts/conformance_table"


def run_table(*words):
    return subprocess.run([TABLE, *map(str, words)], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


class OfThisBuild(unittest.TestCase):
    def test_each_subject_has_its_line(self):
        result = run_table(BUILD, "--only", "linux", "--only", "oci+crun", "--suite", "rung", "--suite", "files-in")
        self.assertEqual(result.returncode, 0, result)
        lines = {line.split()[0]: line for line in result.stdout.splitlines() if line}
        if "not here: " in lines["linux"]:
            self.skipTest(lines["linux"])
        self.assertRegex(lines["linux"], r"^linux +[1-9]\d* +0 +0 +[\d.]+$")
        if shutil.which("crun", path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"):
            self.assertRegex(lines["oci+crun"], r"^oci\+crun +[1-9]\d* +0 +0 +[\d.]+$")
        else:
            self.assertEqual(lines["oci+crun"], "oci+crun      not here: the OCI runtime crun is not installed")


class OfAProgramThatSaysSo(unittest.TestCase):
    def setUp(self):
        self.build = Path(tempfile.mkdtemp(prefix="casemate-table-test-"))
        self.addCleanup(shutil.rmtree, self.build)

    def table(self, says, status):
        (self.build / "casemate").write_text(f"#!/bin/sh\n{says}\nexit {status}\n")
        (self.build / "casemate").chmod(0o755)
        return run_table(self.build, "--only", "linux")

    def test_a_probe_that_failed_is_named_and_is_its_exit_status(self):
        records = [{"suite": "rung", "probe": "p", "status": "passed", "reason": ""},
                   {"suite": "isolation", "probe": "q", "status": "failed", "reason": "seen"},
                   {"suite": "egress", "probe": "r", "status": "skipped", "reason": "not declared"}]
        result = self.table(f"echo '{json.dumps(records)}'", 1)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"(?m)^linux +1 +1 +1 +[\d.]+$")
        self.assertIn("linux: failed: isolation q: seen\nlinux: skipped: egress r: not declared\n", result.stdout)

    def test_a_refusal_stands_in_the_place_of_numbers(self):
        result = self.table("echo 'casemate: error: SandboxUnavailable: no kernel; get one' >&2", 125)
        self.assertTrue(re.search(r"(?m)^linux +not here: SandboxUnavailable: no kernel; get one$", result.stdout), result)
        result = self.table("echo \"casemate: error: InvalidArgument: --backend does not know 'linux'\" >&2", 125)
        self.assertIn("not here: this build has no such backend", result.stdout)


if __name__ == "__main__":
    unittest.main()
