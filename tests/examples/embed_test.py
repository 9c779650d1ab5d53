"""The embedding example runs as it is, and is as short as it claims to be."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))


class Embed(unittest.TestCase):
    def test_it_is_at_most_60_lines(self):
        self.assertLessEqual((ROOT / "examples/embed.cc").read_text().count("\n"), 60)

    def test_it_runs_programs_and_counts_what_it_disposed(self):
        with tempfile.TemporaryDirectory(prefix="casemate-embed-") as folder:
            result = subprocess.run([BUILD / "embed", Path(folder) / "state"], text=True,
                                    stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
            first, second, disposed = result.stdout.split("\n\n", 2)[0], *result.stdout.rsplit("\n\n", 2)[1:]
            self.assertEqual(first, "stdout:\n285")
            self.assertEqual(second, "exit code: 1")
            self.assertIn("ModuleNotFoundError: No module named 'nothing'", result.stdout)
            self.assertEqual(disposed, "sandboxes disposed: 1\n")

    def test_it_says_what_was_refused(self):
        with tempfile.NamedTemporaryFile() as file:
            result = subprocess.run([BUILD / "embed", file.name], text=True,
                                    stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
        self.assertEqual(result.returncode, 1, result)
        self.assertTrue(result.stdout.startswith("Error: the sandbox is not available"), result)
        self.assertIn("state directory", result.stderr)

    def test_it_says_what_the_library_takes_where_it_is_not_available(self):
        with tempfile.TemporaryDirectory(prefix="casemate-embed-") as folder:
            state = Path(folder) / "state"
            state.mkdir(mode=0o755)
            result = subprocess.run([BUILD / "embed", state], text=True, stdin=subprocess.DEVNULL,
                                    capture_output=True, timeout=100)
        self.assertEqual(result.returncode, 1, result)
        self.assertIn("only a directory of this user's with mode 700", result.stderr)
        self.assertIn("the backend's option state_dir", result.stderr)
        self.assertIn("chmod 700", result.stderr)


if __name__ == "__main__":
    unittest.main()
