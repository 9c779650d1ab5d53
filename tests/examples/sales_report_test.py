"""The example's report and chart against a computation of our own from the same sales."""

import csv
import os
import subprocess
import tempfile
import unittest
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))

# Of the chart: the colour of a bar, the height of the highest one, and where bars stand.
COLOUR, PLOT, BOTTOM = (31, 119, 180), 300, 350


class SalesReport(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="casemate-example-")))
        cls.run_of_it = subprocess.run(
            [ROOT / "scripts/run_example", BUILD, cls.work], capture_output=True, text=True, timeout=100,
            env=dict(os.environ, CASEMATE_STATE_DIR=str(cls.work / "state")))
        cls.region, cls.product, cls.month, cls.rows = cls.totals(cls.work / "sales.csv")

    @staticmethod
    def totals(path):
        sums = ({}, {}, {})
        with open(path, encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))[1:]
        for date, region, product, units, price in lines:
            for column, key in zip(sums, (region, product, date[:7])):
                column[key] = column.get(key, Fraction(0)) + int(units) * Fraction(price)
        return *sums, len(lines)

    def test_it_ends_well_and_shows_where_the_picture_is(self):
        self.assertEqual(self.run_of_it.returncode, 0, self.run_of_it)
        self.assertEqual(self.run_of_it.stderr, "saved report.png\n")
        self.assertEqual(self.run_of_it.stdout.splitlines()[-1], f"The chart: {self.work.resolve()}/report.png")

    def test_the_sales_are_thousands_and_always_the_same(self):
        self.assertGreater(self.rows, 2000)
        again = self.work / "again.csv"
        subprocess.run([ROOT / "examples/make_sales_csv.py", again], check=True, timeout=60)
        self.assertEqual(again.read_bytes(), (self.work / "sales.csv").read_bytes())

    def test_every_number_of_the_report_is_right(self):
        report = self.run_of_it.stdout
        total = sum(self.region.values())
        self.assertIn(f"Sales report: {self.rows} sales, {float(total):.2f} in all\n", report)
        for title, sums in (("Revenue by region", self.region), ("Revenue by product", self.product)):
            section = report.split(title + "\n")[1].split("\n\n")[0]
            seen = [(line[:16].strip(), line[16:].strip()) for line in section.splitlines()]
            right = sorted(sums.items(), key=lambda pair: -pair[1])
            self.assertEqual(seen, [(name, f"{float(value):.2f}") for name, value in right])
        lines = report.split("and its change\n")[1].split("\n\n")[0].splitlines()
        before = None
        self.assertEqual(len(lines), len(self.month))
        for line, (month, value) in zip(lines, sorted(self.month.items())):
            words = line.split()
            self.assertEqual(words[:2], [month, f"{float(value):.2f}"])
            if before is not None:
                self.assertAlmostEqual(float(words[2]), float((value / before - 1) * 100), delta=0.051)
            before = value

    def test_the_bars_are_as_high_as_the_revenue_of_their_month(self):
        from PIL import Image
        with Image.open(self.work / "report.png") as picture:
            pixels = picture.convert("RGB").load()
            width, height = picture.size
        # A bar is a run of columns with its colour just above the base line.
        bars, inside = [], False
        for x in range(width):
            coloured = pixels[x, BOTTOM - 1] == COLOUR
            if coloured and not inside:
                bars.append([])
            if coloured:
                bars[-1].append(sum(pixels[x, y] == COLOUR for y in range(height)))
            inside = coloured
        months = sorted(self.month)
        self.assertEqual(len(bars), len(months))
        highest = max(self.month.values())
        for month, heights in zip(months, bars):
            right = float(self.month[month] / highest) * PLOT
            self.assertEqual(len(set(heights)), 1, f"{month} is no rectangle: {heights}")
            self.assertLessEqual(abs(heights[0] - right), 1, month)


if __name__ == "__main__":
    unittest.main()
