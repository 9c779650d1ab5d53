"""The two walks of examples/lookup_walk answer alike, and cost what the example is there to show."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))


def answer():
    """The same question, asked of the same tables by code of its own."""
    state = 3100 + 7 * (["Idaho", "Nevada", "Oregon", "Utah", "Washington"].index("Oregon") + 1)
    taken = {}
    for store in (state * 10 + 3 * i for i in range(5)):
        for day in range(1, 32):
            letter = (store + 5 * day) % 6
            product = 810 + 13 * letter
            price = 199 + product * 37 % 5000
            name = f"Product {'ABCDEF'[letter]}"
            taken[name] = taken.get(name, 0) + price * (1 + (store * 31 + day * 17) % 40)
    best = max(taken, key=taken.get)
    return f"{sum(taken.values()) / 100:.2f} in all; most with {best}: {taken[best] / 100:.2f}"


class LookupWalk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="casemate-walk-", ignore_cleanup_errors=True) as folder:
            cls.result = subprocess.run([BUILD / "lookup_walk", Path(folder) / "state"], text=True, timeout=100,
                                        stdin=subprocess.DEVNULL, capture_output=True)
        cls.text = cls.result.stdout

    def row(self, name):
        found = re.search(rf"^{re.escape(name)} +([\d.]+) +([\d.]+)$", self.text, re.M)
        self.assertIsNotNone(found, f"{name}: {self.result}")
        return float(found[1]), float(found[2])

    def test_both_walks_give_the_right_answer(self):
        self.assertEqual((self.result.returncode, self.result.stderr), (0, ""))
        self.assertEqual(re.findall(r"^(?:one program|the model): +(.*)$", self.text, re.M), [answer()] * 2)

    def test_the_program_takes_two_rounds_and_the_model_one_a_stage(self):
        self.assertEqual(self.row("rounds of the model"), (2, 5))
        self.assertEqual(self.row("calls that the model wrote"), (1, 13))

    def test_both_look_up_the_same(self):
        self.assertEqual(self.row("look-ups"), (13, 13))

    def test_figures_stay_with_the_program(self):
        self.assertEqual(self.row("figures copied by the model"), (0, 12))
        of_program, of_model = self.row("bytes through the transcript")
        self.assertLess(of_program, 1500)
        self.assertGreater(of_model, 4 * of_program)

    def test_the_time_is_printed(self):
        self.row("wall time, ms (without the model)")


if __name__ == "__main__":
    unittest.main()
