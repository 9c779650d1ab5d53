"""The example of docs/snapshots.md: each program begins with what was prepared, whatever another did."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))


class SnapshotFork(unittest.TestCase):
    def test_each_program_has_what_was_prepared(self):
        with tempfile.TemporaryDirectory(prefix="casemate-fork-") as folder:
            state = Path(folder) / "state"
            result = subprocess.run([BUILD / "snapshot_fork", state], text=True, stdin=subprocess.DEVNULL,
                                    capture_output=True, timeout=100)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
            self.assertEqual(result.stdout, "total: 63\nspoil: removed\nbest: june\n")
            for left in ("snapshots", "sandboxes", "new"):
                self.assertEqual(os.listdir(state / left), [], left)

    def test_the_page_shows_the_example_that_is_compiled(self):
        example = (ROOT / "examples/snapshot_fork.cc").read_text()
        shown = re.findall(r"^```cpp\n(.*?)^```$", (ROOT / "docs/snapshots.md").read_text(), re.M | re.S)
        self.assertEqual(len(shown), 2)
        for text in shown:
            self.assertIn(text, example)


if __name__ == "__main__":
    unittest.main()
