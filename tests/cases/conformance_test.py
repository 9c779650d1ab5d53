"""`casemate conformance`: the probes from the command line, and what a script reads of them."""

import os
import re
import signal
import unittest

from harness import PROGRAM, Case
from images_test import make_root

KEYS = ["probe", "suite", "sentence", "status", "expected", "seen", "reason"]


class Conformance(Case):
    def conformance(self, *words):
        return self.run_argv([str(PROGRAM), "conformance", *words], limit=600)

    def test_the_linux_backend_passes_a_line_each(self):
        result = self.conformance()
        self.assertEqual((result.status, result.err), (0, ""), result)
        *lines, total = result.text.splitlines()
        self.assertRegex(total, r"^linux: \d+ passed, 0 failed, \d+ skipped$")
        self.assertGreater(len(lines), 40)
        for line in lines:
            self.assertRegex(line, r"^(passed|skipped) +[a-z-]+ +[a-z0-9-]+ +\S.*$")

    def test_records_have_the_keys_of_the_surface(self):
        result = self.conformance("--suite", "exec", "--suite", "host-tools", "--json")
        self.assertEqual(result.status, 0, result)
        for record in result.json:
            self.assertEqual(list(record), KEYS)
        self.assertEqual({record["suite"] for record in result.json}, {"exec", "host-tools"})
        first = result.json[0]
        self.assertEqual((first["probe"], first["status"]), ("an-argv-sequence-runs", "passed"))
        self.assertEqual((first["expected"], first["seen"], first["reason"]), (None, None, None))

    def test_what_is_not_there_is_refused_with_the_nearest(self):
        for words, parts in ((("--suite", "file-in"), ("'file-in'", "files-in")),
                             (("--backend", "linus"), ("'linus'", "linux")),
                             (("--sweet", "exec"), ("--sweet", "--suite")),
                             (("exec",), ("unexpected 'exec'",))):
            with self.subTest(words=words):
                result = self.conformance(*words)
                self.assertEqual((result.status, result.out), (125, b""), result)
                for part in parts:
                    self.assertIn(part, result.err)

    def test_an_image_that_lacks_what_the_probes_run_is_refused_and_told_what(self):
        root = self.dir / "root"
        make_root(root)
        image = ("--image", f"dir:{root}")
        result = self.conformance(*image)
        self.assertRefused(result, "SandboxImageInvalid", "GNU core utilities")
        self.assertEqual(result.out, b"")
        lacking = re.search("run inside: (.*) is not there", result.err)[1].split(", ")
        self.assertEqual(lacking, sorted(lacking))
        self.assertLess({"cat", "mkdir", "mktemp", "sleep", "stat"}, set(lacking))
        self.assertFalse({"python3", "sh"} & set(lacking))
        told = self.conformance("--help").text
        for program in (*lacking, "python3", "sh"):
            self.assertRegex(told, rf"\b{program}\b")
        # Which has Python and needs nothing else.
        result = self.conformance(*image, "--suite", "host-tools")
        self.assertEqual((result.status, result.err), (0, ""), result)
        os.unlink(root / "usr/bin/sh")
        self.assertRefused(self.conformance(*image, "--suite", "exec"), "SandboxImageInvalid", "inside: sh is not there")

    def test_a_backend_that_cannot_work_is_a_refusal(self):
        result = self.run_argv([str(PROGRAM), "conformance", "--json"],
                               env={"CASEMATE_STATE_DIR": "/proc/none"})
        self.assertEqual((result.status, result.json["status"]), (125, "failed"), result)

    def test_a_signal_ends_it_and_leaves_nothing(self):
        process = self.start([str(PROGRAM), "conformance"])
        self.assertTrue(process.stdout.readline().startswith(b"passed"))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (130, b""))


if __name__ == "__main__":
    unittest.main()
