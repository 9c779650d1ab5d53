"""Cases FO: files that come out, links among them."""

import os
import socket
import unittest

from harness import Case, NEEDS_ROOT


class FilesOut(Case):
    def land(self, program, *names, options=()):
        words = [word for name in names for word in ("--output", name)]
        return self.run_program(program, *words, "--out-dir", self.out, *options)

    def test_FO_01_a_link_is_refused(self):
        """FO-01, FO-09: nothing lands, not even an empty file"""
        for target in ("/etc/hostname", "real", "/nowhere", "."):
            with self.subTest(target=target):
                result = self.land(f'import os; open("real", "w").write("x"); os.symlink({target!r}, "out.txt")',
                                   "out.txt")
                self.assertRefused(result, "SandboxOutputNotRegular", "out.txt")
                self.assertNothingLanded()

    def test_FO_01_json_keeps_the_outcome_and_names_the_refusal(self):
        """FO-01"""
        result = self.run_json('import os; os.symlink("/etc/hostname", "o"); print("ran")', "--output", "o",
                               "--out-dir", self.out)
        self.assertEqual(result.status, 125, result)
        self.assertEqual((result.json["status"], result.json["exit_code"]), ("exited", 0))
        self.assertEqual(result.json["error"]["code"], "SandboxOutputNotRegular")
        self.assertEqual((result.json["stdout"], result.json["artifacts"]), ("ran\n", []))

    def test_what_is_no_regular_file_is_refused(self):
        for make in ('os.mkfifo("o")', 'os.mkdir("o")',
                     'import socket; s = socket.socket(socket.AF_UNIX); s.bind("o")'):
            with self.subTest(make=make):
                result = self.land(f"import os; {make}", "o")
                self.assertRefused(result, "SandboxOutputNotRegular", "o")
        result = self.land('import os; os.symlink("/etc", "d")', "d/hostname")
        self.assertRefused(result, "SandboxOutputNotConfined")
        self.assertNothingLanded()

    def test_FO_03_a_swapping_program_never_gets_the_hosts_file_out(self):
        """FO-03: 60 rounds; the swapper is ended before anything is read"""
        program = '''
import os, subprocess, sys, time
open("real", "w").write("ok"); os.symlink("/etc/hostname", "link")
code = ("import os\\nwhile True:\\n"
        "  os.link('real','t1') if not os.path.exists('t1') else None; os.replace('t1','out.txt')\\n"
        "  os.symlink('/etc/hostname','t2') if not os.path.lexists('t2') else None; os.replace('t2','out.txt')\\n")
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
while not os.path.lexists("out.txt"): time.sleep(0.001)
'''
        landed = 0
        for _ in range(60):
            result = self.land(program, "out.txt", options=("--overwrite",))
            if result.status == 0:
                landed += 1
                self.assertEqual((self.out / "out.txt").read_text(), "ok")
                (self.out / "out.txt").unlink()
            else:
                self.assertRefused(result, "SandboxOutputNotRegular", "out.txt")
            self.assertNothingLanded()
        self.assertLess(landed, 60)

    def test_FO_05_a_sibling_with_the_same_prefix_is_outside(self):
        """FO-05"""
        evil = self.dir / "out-evil"
        evil.mkdir()
        self.out.mkdir()
        os.symlink("../out-evil", self.out / "link")
        program = 'import os; os.mkdir("link"); open("link/x", "w").write("escaped")'
        self.assertRefused(self.land(program, "link/x", options=("--overwrite",)), "SandboxLandingNotConfined")
        for name in ("../out-evil/x", f"{evil}/x", "a/../../out-evil/x"):
            with self.subTest(name=name):
                self.assertRefused(self.land(program, name), "SandboxArtifactNameInvalid")
        self.assertEqual(list(evil.iterdir()), [])

    def test_FO_07_a_sparse_giant_is_refused_by_its_length(self):
        """FO-07"""
        result = self.land('f = open("big", "wb"); f.truncate(1 << 40)', "big")
        self.assertRefused(result, "SandboxTransferCapExceeded", "big", str(8 << 20))
        self.assertNothingLanded()

    def test_FO_07_each_cap_passes_at_equal_and_refuses_one_more(self):
        """FO-07"""
        caps = ("--files-out-limit", "1000,1500,2", "--overwrite")

        def write(**sizes):
            return self.land(f"for n, s in {sizes}.items(): open(n, 'w').write('x' * s)", *sizes, options=caps)

        self.assertEqual(write(a=1000, b=500).status, 0)
        self.assertRefused(write(a=1001), "SandboxTransferCapExceeded", "a", "1001", "1000")
        self.assertRefused(write(a=1000, b=501), "SandboxTransferCapExceeded", "b", "1500")
        self.assertRefused(write(a=1, b=1, c=1), "SandboxTransferCapExceeded", "2")
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), ["a", "b"])

    def test_FO_13_nested_names_land_nested(self):
        """FO-13"""
        result = self.land('''
import os
for d in "ab":
    os.mkdir(d)
    open(d + "/x.txt", "w").write(d)
''', "a/x.txt", "b/x.txt")
        self.assertEqual(result.status, 0, result)
        self.assertEqual((self.out / "a/x.txt").read_text(), "a")
        self.assertEqual((self.out / "b/x.txt").read_text(), "b")
        self.assertIn("saved a/x.txt\nsaved b/x.txt\n", result.err)

    def test_a_file_that_is_there_is_replaced_only_when_told(self):
        self.out.mkdir()
        (self.out / "x").write_text("old")
        program = 'open("x", "w").write("new")'
        self.assertRefused(self.land(program, "x"), "SandboxLandingExists", "x", "--overwrite")
        self.assertEqual((self.out / "x").read_text(), "old")
        self.assertEqual(self.land(program, "x", options=("--overwrite",)).status, 0)
        self.assertEqual((self.out / "x").read_text(), "new")

    def test_a_missing_output_fails_a_run_that_succeeded(self):
        result = self.land('open("there", "w").write("x")', "there", "not\u200bthere")
        self.assertRefused(result, "SandboxOutputMissing")
        self.assertIn("saved there\n", result.err)
        self.assertIn("missing not\\u{200b}there\n", result.err)
        self.assertTrue((self.out / "there").exists())
        result = self.run_json("", "--output", "gone", "--out-dir", self.out)
        self.assertEqual(result.json["missing_outputs"], ["gone"])
        self.assertEqual(result.json["error"]["code"], "SandboxOutputMissing")
        self.assertEqual(result.json["status"], "exited")

    def test_a_missing_output_never_hides_the_programs_own_failure(self):
        result = self.land("raise SystemExit(3)", "gone")
        self.assertEqual(result.status, 3, result)
        self.assertIn("missing gone\n", result.err)

    def test_outputs_of_a_program_that_failed_or_ran_out_of_time_land(self):
        for ending, status, options in (("raise SystemExit(3)", 3, ()),
                                        ("import time; time.sleep(1000)", 124, ("--timeout", "3"))):
            with self.subTest(ending=ending):
                result = self.land(f'open("x", "w").write("kept"); {ending}', "x",
                                   options=("--overwrite", *options))
                self.assertEqual(result.status, status, result)
                self.assertEqual((self.out / "x").read_text(), "kept")
                (self.out / "x").unlink()

    def test_a_manifest_names_the_outputs(self):
        program = '''
import json
open("a.txt", "w").write("A"); open("b.txt", "w").write("B")
json.dump({"outputs": [{"path": "a.txt"}, {"path": "b.txt"}]}, open("outputs.json", "w"))
'''
        result = self.run_json(program, "--manifest", "--out-dir", self.out)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(result.json["artifacts"],
                         [{"name": name, "bytes": 1, "path": str(self.out / name)} for name in ("a.txt", "b.txt")])
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), ["a.txt", "b.txt"])

    def test_a_bad_manifest_is_refused_and_lands_nothing(self):
        for text in ("[]", "{", '{"outputs": [{"path": "../x"}]}', '{"outputs": [{"path": 1}]}',
                     '{"outputs": [{"path": "a"}, {"path": "A"}]}', "\\xff", "[" * 10000):
            with self.subTest(manifest=text):
                result = self.run_program(
                    f'open("a", "w").write("a"); open("outputs.json", "wb").write(b\'{text}\')',
                    "--manifest", "--out-dir", self.out)
                self.assertEqual(result.status, 125, result)
                self.assertEqual(result.err.count("casemate: error: "), 1, result)
                self.assertNothingLanded()

    @NEEDS_ROOT
    def test_a_full_disk_is_named_and_nothing_of_the_file_stays(self):
        small = self.dir / "small"
        small.mkdir()
        # A mount in a namespace of the test's own: nobody else ever sees it.
        wrapper = self.write("wrapper.sh", f'''
mount -t tmpfs -o size=64k none {small} || exit 99
"$@"
status=$?
find {small} -type f >&2
exit $status
''')
        run = self.argv("--output", "big", "--out-dir", small, program='open("big", "wb").write(b"x" * 1000000)')
        result = self.run_argv(["unshare", "--mount", "--propagation", "private", "sh", str(wrapper), *run])
        self.assertRefused(result, "SandboxFileError", "No space left on device")
        self.assertNotIn(str(small / "big"), result.err.splitlines())

    def test_the_hosts_name_is_not_the_guests(self):
        """The canary of FO-01 is worth something: inside, /etc/hostname is not the host's."""
        if socket.gethostname() == "sandbox":
            self.skipTest("this machine is called what every guest is called")
        result = self.run_program('print(open("/etc/hostname").read().strip())')
        self.assertEqual(result.status, 0, result)
        self.assertNotEqual(result.text.strip(), socket.gethostname())


if __name__ == "__main__":
    unittest.main()
