"""`casemate bench`: its records, and that a measurement leaves nothing. What it measures is asserted
nowhere: a busy machine is no fault of the program's."""

import unittest

from harness import Case, PROGRAM


KEYS = {"work", "subject", "argv", "median_ms", "p99_ms", "runs", "samples_ms", "ratio_to_limit", "target", "holds"}


class Bench(Case):
    def records(self, *options):
        result = self.run_argv([str(PROGRAM), "bench", "--json", *options], limit=600)
        self.assertEqual(result.status, 0, result)
        return result.json

    def test_each_record_has_the_keys_and_every_sample(self):
        records = self.records("--work", "warm_true", "--work", "cold_true", "--rounds", "3")
        self.assertEqual({record["work"] for record in records}, {"cold_true", "warm_true"})
        for record in records:
            self.assertLessEqual(KEYS, set(record), record)
            self.assertEqual(len(record["samples_ms"]), record["runs"], record)
            if record["subject"] in ("casemate", "limit"):
                self.assertEqual(record["runs"], 3, record)
                self.assertIn(record["median_ms"], record["samples_ms"])
                self.assertGreaterEqual(record["p99_ms"], record["median_ms"])
                self.assertGreater(record["ratio_to_limit"], 0)
            elif not record["runs"]:
                self.assertTrue(record["reason"], record)
            else:
                self.assertTrue(record["argv"], "a peer says how it was run")
        self.assertEqual({record["holds"] is None for record in records if record["subject"] == "limit"}, {True})

    def test_machines_are_measured_where_an_image_is_named_only(self):
        rows = [record for record in self.records("--work", "cold_true", "--work", "warm_true", "--rounds", "1")
                if record["subject"].startswith("casemate microvm")]
        self.assertEqual([row["work"] for row in rows], ["cold_true", "warm_true"])
        for row in rows:
            self.assertEqual(row["runs"], 0)
            self.assertIn("CASEMATE_BENCH_MACHINE_IMAGE", row["reason"])

    def test_works_and_rounds_are_read_strictly(self):
        for options, nearest in ((("--work", "cold_treu"), "cold_true"), (("--rounds", "0"), "1 to")):
            result = self.run_argv([str(PROGRAM), "bench", *options])
            self.assertEqual(result.status, 125, result)
            self.assertIn(nearest, result.err)


if __name__ == "__main__":
    unittest.main()
