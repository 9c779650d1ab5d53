"""examples/mcp_client does what it says."""

import hashlib
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release")).resolve()


class McpClient(unittest.TestCase):
    def test_it_follows_cancels_and_reads(self):
        with tempfile.TemporaryDirectory(prefix="casemate-example-", ignore_cleanup_errors=True) as folder:
            result = subprocess.run([ROOT / "examples/mcp_client"], capture_output=True, text=True, timeout=60,
                                    env={"PATH": f"{BUILD}:/usr/bin:/bin", "CASEMATE_STATE_DIR": folder})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("step 0\nstep 1\nstep 2", result.stdout)
        self.assertIn(" ... running the program", result.stdout)
        self.assertIn("cancelled; still served: ['execute_code']", result.stdout)
        digest = hashlib.sha256(b"tea,4.20\ncoffee,3.90\n").hexdigest()
        self.assertIn(f"table.csv text/csv {digest}", result.stdout)


if __name__ == "__main__":
    unittest.main()
