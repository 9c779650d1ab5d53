"""Cases OUT: what a program prints, and how its end is told."""

import base64
import re
import subprocess
import time
import unittest

from harness import CAP, Case

MARKER = re.compile(r"\n?\[\.\.\. (\d+) bytes missing \.\.\.\]\n")


class Output(Case):
    def test_OUT_01_characters_cut_by_reads_stay_whole(self):
        """OUT-01"""
        program = '''
import sys, time
for b in (b"\\xe2", b"\\x82", b"\\xac", b"\\n"):
    sys.stdout.buffer.write(b); sys.stdout.buffer.flush(); time.sleep(0.2)
sys.stdout.buffer.write(("\\u2615" * 100000).encode() + b"\\n")
sys.stderr.write("\\u00e9" * 70000)
'''
        expected = "\u20ac\n" + "\u2615" * 100000 + "\n"
        result = self.run_json(program)
        self.assertEqual(result.json["stdout"], expected)
        self.assertEqual(result.json["stderr"], "\u00e9" * 70000)
        self.assertNotIn("stdout_base64", result.json)
        result = self.run_program(program)
        self.assertEqual(result.text, expected)
        self.assertEqual(result.err, "\u00e9" * 70000)

    def test_OUT_03_truncation_is_flagged_counted_and_visible(self):
        """OUT-03"""
        program = 'print("HEAD")\nfor i in range(200_000): print(f"{i:0>63}")\nprint("TAIL")\n'
        whole = "HEAD\n" + "".join(f"{i:0>63}\n" for i in range(200_000)) + "TAIL\n"
        self.assertGreater(len(whole), CAP)
        result = self.run_json(program)
        self.assertEqual(result.status, 0, result.err)
        text = result.json["stdout"]
        missing = result.json["stdout_truncated_bytes"]
        markers = MARKER.findall(text)
        self.assertEqual(markers, [str(missing)])
        head, tail = re.split(r"\[\.\.\. \d+ bytes missing \.\.\.\]\n", text)
        if not whole.startswith(head):
            head = head.removesuffix("\n")  # the marker is a line of its own
        self.assertTrue(whole.startswith(head))
        self.assertTrue(whole.endswith(tail))
        self.assertTrue(tail.endswith("TAIL\n"))
        self.assertEqual(len(head) + missing + len(tail), len(whole))
        self.assertEqual(result.json["stderr_truncated_bytes"], 0)
        # The streams themselves have no cap.
        result = self.run_program('''import sys
sys.stdout.write("HEAD\\n" + "".join(f"{i:0>63}\\n" for i in range(200_000)) + "TAIL\\n")''')
        self.assertEqual((result.status, result.out), (0, whole.encode()))

    def test_OUT_05_a_chatty_program_is_an_ordinary_one(self):
        """OUT-05"""
        result = self.run_json('for i in range(1626): print("Hello world")')
        self.assertEqual(result.status, 0, result)
        self.assertEqual(result.json["stdout"], "Hello world\n" * 1626)
        self.assertEqual(result.json["stdout_truncated_bytes"], 0)
        self.assertIsNone(result.json["limit"])

    def test_OUT_07_the_cap_is_in_bytes_and_never_cuts_a_character(self):
        """OUT-07: the cut lies at each of the four places in a character of four bytes"""
        characters = CAP // 4 + 1000
        for shift in range(4):
            with self.subTest(shift=shift):
                result = self.run_json(f'import sys; sys.stdout.write("a" * {shift} + "\\U0001F600" * {characters})')
                text = result.json["stdout"]
                missing = result.json["stdout_truncated_bytes"]
                self.assertEqual(MARKER.findall(text), [str(missing)])
                kept = MARKER.sub("", text)
                self.assertEqual(set(kept) - {"a"}, {"\U0001F600"})
                size = len(kept.encode())
                self.assertLessEqual(size, CAP)
                self.assertGreater(size, CAP - 8)
                self.assertEqual(size + missing, shift + 4 * characters)
                self.assertNotIn("stdout_base64", result.json)

    def test_OUT_09_the_cap_holds_however_the_program_ends(self):
        """OUT-09: exactly the cap passes whole, one byte more is cut, in each of three endings"""
        endings = (("", 0, ()), ("sys.exit(1)", 1, ()),
                   ("import time; sys.stdout.flush(); time.sleep(1000)", 124, ("--timeout", "5")))
        for ending, status, options in endings:
            sizes = ((CAP, 0), (CAP + 1, 1))
            paths = [self.write(f"of{size}.py", f'import sys; sys.stdout.write("x" * {size}); {ending}') for size, _ in sizes]
            open_runs = [self.start(self.argv("--json", *options, path)) for path in paths]
            for process, (size, missing) in zip(open_runs, sizes):
                with self.subTest(ending=ending, size=size):
                    result = self.finish(process, time.monotonic())
                    self.assertEqual(result.status, status, result.err)
                    self.assertEqual(result.json["stdout_truncated_bytes"], missing)
                    self.assertEqual(len(MARKER.sub("", result.json["stdout"])), size - missing)

    def test_OUT_11_death_by_a_signal_is_told(self):
        """OUT-11"""
        for number, name in ((9, "SIGKILL"), (11, "SIGSEGV"), (6, "SIGABRT"), (15, "SIGTERM")):
            with self.subTest(signal=name):
                result = self.run_json(f"import os; os.kill(os.getpid(), {number})")
                self.assertEqual(result.status, 128 + number, result)
                self.assertEqual(result.json["status"], "signaled")
                self.assertEqual(result.json["signal"], name)
                self.assertIsNone(result.json["exit_code"])
        result = self.run_json("import os; os._exit(300 % 256)")
        self.assertEqual((result.status, result.json["exit_code"]), (44, 44), result)
        result = self.run_program('raise SystemExit("text")')
        self.assertEqual((result.status, result.err), (1, "text\n"), result)

    def test_OUT_13_silence_is_told_from_a_lost_stream(self):
        """OUT-13"""
        result = self.run_json("x = 6 * 7")
        self.assertEqual(result.status, 0, result)
        self.assertEqual(result.json["status"], "exited")
        self.assertEqual((result.json["exit_code"], result.json["stdout"], result.json["stderr"]), (0, "", ""))
        self.assertEqual(result.json["stdout_truncated_bytes"], 0)
        self.assertIsNone(result.json["error"])
        result = self.run_program("x = 6 * 7")
        self.assertEqual((result.status, result.out, result.err), (0, b"", ""), result)

    def test_bytes_that_are_no_utf8_come_whole(self):
        program = 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 3); sys.stderr.buffer.write(b"\\xc3")'
        data = bytes(range(256)) * 3
        result = self.run_json(program)
        self.assertEqual(base64.b64decode(result.json["stdout_base64"]), data)
        self.assertEqual(base64.b64decode(result.json["stderr_base64"]), b"\xc3")
        self.assertIn("\ufffd", result.json["stdout"])
        result = self.run_argv(self.argv(program='import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)'))
        self.assertEqual((result.status, result.out), (0, data))

    def test_output_passes_through_as_it_comes(self):
        process = self.start(self.argv("--stdin", program='print("first"); print(input())'),
                             stdin=subprocess.PIPE)
        # Nothing is sent before the line is here, so it was not held back until the end.
        self.assertEqual(process.stdout.readline(), b"first\n")
        out, err = process.communicate(b"second\n", timeout=30)
        self.assertEqual((process.returncode, out), (0, b"second\n"), err)


if __name__ == "__main__":
    unittest.main()
