"""Cases IN: files that go in."""

import hashlib
import os
import stat
import threading
import unittest

from harness import Case, NEEDS_ROOT


class FilesIn(Case):
    @NEEDS_ROOT
    def test_IN_02_nobody_changes_the_owner_of_what_a_link_points_to(self):
        """IN-02: the guest puts links in the place of shared and of landed files, and swaps them"""
        canary = self.write("canary", "secret")
        os.chmod(canary, 0o640)
        os.chown(canary, 4321, 4322)
        shared = self.write("shared.txt", "content")
        program = f'''
import os, subprocess, sys
path = {str(canary)!r}
os.remove("shared.txt")
os.symlink(path, "shared.txt")
os.symlink(path, "link")
swap = "import os\\nwhile True:\\n  os.symlink({str(canary)!r}, 't'); os.replace('t', 'out.txt'); open('t', 'w').close(); os.replace('t', 'out.txt')"
subprocess.Popen([sys.executable, "-c", swap], start_new_session=True)
'''
        for _ in range(10):
            result = self.run_program(program, "--file", f"shared.txt={shared}", "--output", "out.txt",
                                      "--output", "shared.txt", "--out-dir", self.out, "--overwrite")
            self.assertEqual(result.status, 125, result)
            about = os.lstat(canary)
            self.assertEqual((about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)), (4321, 4322, 0o640))
            self.assertEqual(canary.read_text(), "secret")
            self.assertNothingLanded()
        about = os.lstat(shared)
        self.assertEqual((about.st_uid, shared.read_text()), (os.getuid(), "content"))

    def test_IN_04_a_name_is_never_run(self):
        """IN-04"""
        names = ["x';touch pwn;'.txt", "$(touch pwn).txt", "`touch pwn`.txt", "a b;touch pwn.txt", "-rf",
                 "--help", 'x"; import os; os.system("touch pwn"); #.txt']
        options = []
        for number, name in enumerate(names):
            options += ["--file", f"{name}={self.write(f'source{number}', name)}"]
        result = self.run_program('''
import os
for name in sorted(os.listdir(".")): print(repr(name), open(name).read() == name)
print("pwn" in [f for _, _, files in os.walk("/workspace") for f in files])
''', *options, cwd=self.dir)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(result.text.splitlines(), [f"{name!r} True" for name in sorted(names)] + ["False"])
        self.assertFalse((self.dir / "pwn").exists())

    def test_IN_04_a_landed_name_is_never_run(self):
        """IN-04"""
        names = ["x';touch pwn;'.txt", "$(touch pwn).txt", "-rf", "--help"]
        options = [word for name in names for word in ("--output", name)]
        result = self.run_program(f"for name in {names!r}: open(name, 'w').write(name)", *options,
                                  "--out-dir", self.out, cwd=self.dir)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), sorted(names))
        self.assertFalse((self.dir / "pwn").exists())

    def test_IN_06_bytes_are_the_same_in_inside_and_out(self):
        """IN-06"""
        contents = {"all": bytes(range(256)), "crlf": b"a\r\nb\r\n", "nul": b"end\x00",
                    "bom": b"\xef\xbb\xbftext", "base64": b"aGVsbG8gd29ybGQ=", "empty": b""}
        options = []
        for name, content in contents.items():
            options += ["--file", f"{name}={self.write(name, content)}", "--output", f"{name}.copy"]
        result = self.run_json('''
import hashlib, os, shutil
for name in sorted(os.listdir(".")):
    print(name, hashlib.sha256(open(name, "rb").read()).hexdigest())
    shutil.copyfile(name, name + ".copy")
''', *options, "--out-dir", self.out)
        self.assertEqual(result.status, 0, result)
        for line in result.json["stdout"].splitlines():
            name, digest = line.split()
            self.assertEqual(digest, hashlib.sha256(contents[name]).hexdigest())
            self.assertEqual((self.out / f"{name}.copy").read_bytes(), contents[name])
        self.assertEqual(len(result.json["artifacts"]), len(contents))
        self.assertEqual(result.json["missing_outputs"], [])

    def test_IN_08_a_shared_module_harms_only_its_own_import(self):
        """IN-08: start-up never loads a shared file, whatever it is called"""
        evil = self.write("evil.py", 'print("SHADOWED")')
        options = []
        for name in ("json.py", "socket.py", "site.py", "sitecustomize.py", "usercustomize.py",
                     "encodings/__init__.py", "codecs.py", "os.py", "casemate_tools.py"):
            options += ["--file", f"{name}={evil}"]
        result = self.run_program('print("mine")', *options)
        self.assertEqual((result.status, result.out, result.err), (0, b"mine\n", ""), result)
        # ... and an import of the program's own finds what lies beside it.
        helper = self.write("helper.py", "VALUE = 42")
        result = self.run_program("import json, helper; print(helper.VALUE)", *options, "--file",
                                  f"helper.py={helper}")
        self.assertEqual((result.status, result.out), (0, b"SHADOWED\n42\n"), result)

    def test_IN_10_caps_refuse_before_anything_starts(self):
        """IN-10: one more than each cap is refused with the cap and the file, exactly it passes"""
        caps = ("--files-in-limit", "1000,2500,5")
        program = "import os; print(sorted(os.listdir('.')))"
        one_byte = self.write("one", "x")
        many = [word for number in range(10001) for word in ("--file", f"n{number}={one_byte}")]
        self.assertRefused(self.run_program(program, *many), "SandboxTransferCapExceeded", "64")

        full, over = self.write("full", "x" * 1000), self.write("over", "x" * 1001)
        self.assertRefused(self.run_program(program, *caps, "--file", over),
                           "SandboxTransferCapExceeded", "'over'", "1000")
        total = 2500 - len(program)
        rest = self.write("rest", "x" * (total - 2000 + 1))
        options = [*caps, "--file", f"a={full}", "--file", f"b={full}", "--file", f"c={rest}"]
        self.assertRefused(self.run_program(program, *options), "SandboxTransferCapExceeded", "'c'", "2500")
        self.assertNothingStarted()

        rest.write_text("x" * (total - 2000))
        result = self.run_program(program, *options)
        self.assertEqual((result.status, result.text), (0, "['a', 'b', 'c']\n"), result)

    def test_IN_10_the_count_includes_the_program(self):
        """IN-10"""
        one_byte = self.write("one", "x")
        files = [word for number in range(3) for word in ("--file", f"n{number}={one_byte}")]
        result = self.run_program("pass", "--files-in-limit", "1K,1K,4", *files)
        self.assertEqual(result.status, 0, result)
        result = self.run_program("pass", "--files-in-limit", "1K,1K,3", *files)
        self.assertRefused(result, "SandboxTransferCapExceeded", "3")

    def test_IN_10_only_regular_files_are_taken(self):
        """IN-10"""
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        for path, what in ((fifo, "fifo"), (self.dir, self.dir.name), ("/dev/zero", "zero"),
                           (self.dir / "missing", "missing")):
            with self.subTest(path=path):
                result = self.run_program("print(1)", "--file", f"x={path}")
                self.assertRefused(result, "SandboxFileError", what)
        self.assertNothingStarted()
        # The operator's own link is followed.
        target = self.write("target", "linked")
        os.symlink(target, self.dir / "link")
        result = self.run_program("print(open('link').read())", "--file", self.dir / "link")
        self.assertEqual((result.status, result.out), (0, b"linked\n"), result)

    def test_IN_10_a_file_that_grows_while_it_is_read_stops_at_the_cap(self):
        """IN-10"""
        # Says that it is empty and yields kilobytes: as if it had grown since it was looked at.
        result = self.run_program("print(1)", "--files-in-limit", "1K,1M,4", "--file", "x=/proc/self/smaps")
        self.assertRefused(result, "SandboxTransferCapExceeded", "1024")
        growing = self.write("growing", "x" * 500)
        stop = threading.Event()

        def grow():
            with open(growing, "ab", buffering=0) as file:
                while not stop.is_set():
                    file.write(b"x" * 4096)
                    if file.tell() > 64 << 20:
                        file.truncate(500)

        thread = threading.Thread(target=grow)
        thread.start()
        try:
            for _ in range(10):
                result = self.run_program("import os; print(os.path.getsize('x'))", "--files-in-limit",
                                          "1M,2M,4", "--file", f"x={growing}")
                if result.status == 0:
                    self.assertLessEqual(int(result.out), 1 << 20)
                else:
                    self.assertRefused(result, "SandboxTransferCapExceeded", "'x'")
        finally:
            stop.set()
            thread.join()


if __name__ == "__main__":
    unittest.main()
