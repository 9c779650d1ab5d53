"""The public conformance suites of MCP against our server over HTTP, for both eras.

The suites end with 1 for a failure that is not in the file of expected ones, and also for one that is
there and did not happen.
"""

import re
import subprocess
import unittest
from pathlib import Path

from mcp_clients import MODULES, NODE, require_clients, served

HERE = Path(__file__).resolve().parent
# No special tools are needed for these.
ANY_SERVER = {
    "handshake": ["server-initialize", "logging-set-level", "ping", "tools-list", "server-sse-multiple-streams",
                  "resources-list", "dns-rebinding-protection"],
    "stateless": ["tools-list", "server-sse-multiple-streams", "resources-list", "sep-2164-resource-not-found",
                  "dns-rebinding-protection", "http-header-validation"],
}
VERSION = {"handshake": [], "stateless": ["--spec-version", "2026-07-28"]}


def run_suite(era, url, *options):
    return subprocess.run([NODE, MODULES / f"conformance-{era}/dist/index.js", "server", "--url", url, *VERSION[era],
                           *options], capture_output=True, text=True, timeout=300, check=False)


class Conformance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_clients()

    def check_everything(self, era):
        with served(["mcp-everything"]) as (url, _):
            run = run_suite(era, url, "--suite", "all", "--expected-failures",
                            HERE / f"expected_failures_{era}.yml")
        total = re.search(r"Total: (\d+) passed, (\d+) failed", run.stdout)
        self.assertTrue(total, run.stdout[-2000:] + run.stderr[-2000:])
        print(f"{era}: {total[0]}")
        self.assertEqual(run.returncode, 0, run.stdout[-4000:])
        self.assertGreater(int(total[1]), 0)

    def test_the_released_suite_passes_for_the_handshake_era(self):
        self.check_everything("handshake")

    def test_the_pre_release_suite_passes_for_the_stateless_revision(self):
        self.check_everything("stateless")

    def test_the_command_line_passes_what_needs_no_special_tools(self):
        for era, scenarios in ANY_SERVER.items():
            with served(["casemate", "mcp"], "--min-isolation", "container", "--out-dir", self.directory()) as (url, _):
                for scenario in scenarios:
                    with self.subTest(era=era, scenario=scenario):
                        run = run_suite(era, url, "--scenario", scenario)
                        self.assertEqual(run.returncode, 0, run.stdout[-3000:] + run.stderr[-1000:])

    def directory(self):
        import tempfile
        directory = tempfile.TemporaryDirectory(prefix="casemate-test-")
        self.addCleanup(directory.cleanup)
        return directory.name


if __name__ == "__main__":
    unittest.main()
