"""Images: --image in each form, and the verb `casemate image`."""

import gzip
import hashlib
import io
import json
import os
import pty
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import termios
import unittest
from pathlib import Path

from harness import Case, NEEDS_ROOT, PROGRAM, signal

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
LEFT_OUT = ("__pycache__", "test", "tests", "config-*", "lib2to3", "idlelib", "tkinter", "dist-packages",
            "ensurepip", "turtle*", "distutils", "unittest", "pydoc_data", "asyncio", "multiprocessing")


def libraries_of(program):
    for line in subprocess.check_output(["ldd", program], text=True).splitlines():
        yield from (word for word in line.split() if word.startswith("/"))


def make_root(root):
    """A root file system with this machine's python3 and sh, and nothing else."""
    python = os.path.realpath("/usr/bin/python3")
    shell = os.path.realpath("/bin/sh")

    def copy(path):
        # On a merged system /lib is in /usr, and so it is in here.
        target = root / (path if path.startswith("/usr/") else "/usr" + path)[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)

    for path in {python, shell, *libraries_of(python), *libraries_of(shell)}:
        copy(path)
    (root / "usr/bin/python3").symlink_to(os.path.basename(python))
    if os.path.basename(shell) != "sh":
        (root / "usr/bin/sh").symlink_to(os.path.basename(shell))
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    version = os.path.basename(python)
    shutil.copytree(f"/usr/lib/{version}", root / "usr/lib" / version, symlinks=True,
                    ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    for name, text in (("etc/mark", "of the image"), ("srv/data/deep/mark", "of the image"),
                       ("home/other/mark", "x"), ("var/lib/mark", "x"), ("root/mark", "x"),
                       ("etc/passwd", "root:x:0:0:of the image:/:/bin/sh\n"), ("tmp/mark", "x"), ("run/mark", "x")):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # Content like any other, which leads nowhere in a sandbox.
    (root / "etc/leads-out").symlink_to("/etc/shadow")
    (root / "leads-up").symlink_to("../../../../..")


def tar_of(add):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        add(tar)
    return buffer.getvalue()


def tar_file(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def hex_of(content):
    return hashlib.sha256(content).hexdigest()


class Image:
    def __init__(self, tars, variables=(), architecture=ARCHITECTURE):
        self.layers = [gzip.compress(tar, 1) for tar in tars]
        self.tars = tars
        self.config = json.dumps(
            {"architecture": architecture, "os": "linux", "config": {"Env": list(variables)},
             "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hex_of(tar) for tar in tars]}}).encode()
        self.id = "sha256:" + hex_of(self.config)

    def write_layout(self, path, hole=0, stated_hole=0):
        """With so many bytes that take no room behind each layer, and as the manifest has it."""
        blobs = path / "blobs/sha256"
        blobs.mkdir(parents=True)

        def put(kind, content, hole=0, stated_hole=0):
            (blobs / hex_of(content)).write_bytes(content)
            os.truncate(blobs / hex_of(content), len(content) + hole)
            return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": "sha256:" + hex_of(content),
                    "size": len(content) + stated_hole}

        layers = [put("layer.v1.tar+gzip", layer, hole, stated_hole) for layer in self.layers]
        manifest = json.dumps({"schemaVersion": 2, "config": put("config.v1+json", self.config),
                               "layers": layers}).encode()
        entry = put("manifest.v1+json", manifest)
        entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
        (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        return f"oci:{path}"

    def write_archive(self, path):
        def add(tar):
            names = []
            for number, layer in enumerate(self.tars):
                names.append(f"{number}/layer.tar")
                tar_file(tar, names[-1], layer)
            tar_file(tar, self.id[7:] + ".json", self.config)
            tar_file(tar, "manifest.json",
                     json.dumps([{"Config": self.id[7:] + ".json", "RepoTags": ["a:b"], "Layers": names}]).encode())
        path.write_bytes(tar_of(add))
        return f"docker-archive:{path}"


class ImageCase(Case):
    @classmethod
    def setUpClass(cls):
        cls.shared = Path(tempfile.mkdtemp(prefix="casemate-images-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.root = cls.shared / "root"
        make_root(cls.root)
        cls.tar = tar_of(lambda tar: tar.add(cls.root, arcname="."))

    def setUp(self):
        super().setUp()
        self.store = self.dir / "images"
        self.addCleanup(self.nothing_is_left_in_the_store)

    def environment(self, extra=None):
        return super().environment({"CASEMATE_IMAGE_DIR": str(self.store), **(extra or {})})

    def image(self, *words, **how):
        return self.run_argv([str(PROGRAM), "image", *map(str, words)], **how)

    def listed(self):
        result = self.image("ls", "--json")
        self.assertEqual(result.status, 0, result)
        return result.json

    def on_terminal(self, argv, on_more=lambda said: None, **how):
        """With standard error on a terminal: its exit status, and what was written there, whose line ends are as
        a program writes them. `on_more` is called with all of it as it comes; `on_it` is the process."""
        ours, theirs = pty.openpty()
        attributes = termios.tcgetattr(theirs)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        process = self.on_it = self.start(argv, stderr=theirs, **how)
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
                on_more(said)
        except OSError:  # EIO, when nobody has the other end any more
            pass
        os.close(ours)
        return process.wait(), said

    @staticmethod
    def left_on_the_screen(said):
        """What was not drawn over."""
        return [line.rpartition("\r")[2].rstrip(" ") for line in said.decode().rstrip("\n").split("\n")]

    def nothing_is_left_in_the_store(self):
        left = [str(path) for folder in ("new", "trash") for path in (self.store / folder).glob("*")]
        self.assertEqual(left, [])

    def python_image(self, **options):
        return Image([self.tar], **options)


LOOK = """
import json, os
def listing(path): return sorted(os.listdir(path))
def text(path):
    try: return open(path).read()
    except OSError as error: return error.strerror
def writes(path):
    try: open(path, 'w').write('x'); return 'wrote'
    except OSError as error: return error.strerror
print(json.dumps({
    'marks': [text('/etc/mark'), text('/srv/data/deep/mark')],
    'hidden': [text('/tmp/mark'), text('/run/mark'), text('/etc/leads-out')],
    'shown': [text('/home/other/mark'), text('/var/lib/mark'), text('/root/mark')],
    'passwd': 'of the image' in text('/etc/passwd'),
    'read_only': [writes(p) for p in ('/usr/x', '/srv/data/x', '/etc/x', '/x', '/etc/mark', '/bin/sh')],
    'writable': [writes(p) for p in ('/tmp/x', '/home/user/x', '/dev/shm/x', 'x')],
    'up': listing('/leads-up') == listing('/'),
    'host_only': os.path.exists('/usr/share'),
    'environment': {k: os.environ.get(k) for k in ('PATH', 'HOME', 'FROM_IMAGE', 'BOTH', 'TMPDIR')},
}))
"""


class Forms(ImageCase):
    def assertLooksLikeTheImage(self, result):
        self.assertEqual(result.status, 0, result)
        seen = result.json
        self.assertEqual(seen["marks"], ["of the image"] * 2)
        self.assertEqual(seen["shown"], ["x"] * 3)
        self.assertEqual(seen["hidden"], ["No such file or directory"] * 3)
        self.assertFalse(seen["passwd"])
        self.assertEqual(set(seen["read_only"]), {"Read-only file system"})
        self.assertEqual(set(seen["writable"]), {"wrote"})
        self.assertTrue(seen["up"])
        self.assertFalse(seen["host_only"])
        return seen

    def test_a_directory_is_used_where_it_is_and_stays_as_it_was(self):
        seen = self.assertLooksLikeTheImage(self.run_program(LOOK, "--image", f"dir:{self.root}"))
        self.assertEqual(seen["environment"]["PATH"], "/usr/local/bin:/usr/bin:/bin:/casemate/bin")
        self.assertFalse(self.store.exists())
        self.assertEqual((self.root / "etc/mark").read_text(), "of the image")
        relative = self.run_program("print(1)", "--image", "dir:root", cwd=self.shared)
        self.assertEqual(relative.text, "1\n", relative)

    def test_a_layout_and_an_archive_run_with_the_variables_of_the_image(self):
        image = self.python_image(variables=["PATH=/nowhere:/usr/bin", "FROM_IMAGE=yes", "BOTH=image", "HOME=/root",
                                             "TMPDIR=/nowhere"])
        for reference in (image.write_layout(self.dir / "layout"), image.write_archive(self.dir / "image.tar")):
            result = self.run_program(LOOK, "--image", reference, "--env", "BOTH=request")
            seen = self.assertLooksLikeTheImage(result)
            self.assertEqual(seen["environment"], {"PATH": "/nowhere:/usr/bin:/casemate/bin", "HOME": "/home/user", "TMPDIR": "/tmp",
                                                   "FROM_IMAGE": "yes", "BOTH": "request"})
        record, = self.listed()
        self.assertEqual((record["id"], len(record["references"]), record["in_use"]), (image.id, 2, False))
        by_id = self.run_json("print(1)", "--image", image.id)
        self.assertEqual((by_id.json["stdout"], by_id.json["sandbox"]["image"]), ("1\n", image.id))

    def test_python_is_looked_up_in_the_image_alone(self):
        """An image without python3 is told so, whatever this machine has."""
        empty = self.dir / "empty"
        (empty / "usr/bin").mkdir(parents=True)
        # Leads to this machine's, if anybody followed it out here.
        (empty / "usr/bin/python3").symlink_to("/usr/bin/python3.11")
        result = self.run_program("print(1)", "--image", f"dir:{empty}")
        self.assertRefused(result, "SandboxImageInvalid", "python3", "use an image with Python 3")
        moved = self.python_image(variables=["PATH=/nowhere"]).write_layout(self.dir / "layout")
        self.assertRefused(self.run_program("print(1)", "--image", moved), "SandboxImageInvalid", "PATH")
        foreign = self.dir / "foreign"
        (foreign / "usr/bin").mkdir(parents=True)
        (foreign / "usr/bin/python3").write_bytes(b"\x7fELF of another machine")
        (foreign / "usr/bin/python3").chmod(0o755)
        (foreign / "bin").symlink_to("usr/bin")
        result = self.run_program("print(1)", "--image", f"dir:{foreign}")
        self.assertRefused(result, "SandboxImageInvalid", "python3")

    def test_what_is_no_image_is_refused_before_anything_starts(self):
        for reference, code, word in (
                ("dir:/no/such", "SandboxImageInvalid", "No such file"), ("dir:/", "SandboxImageInvalid", "`host`"),
                ("oci:/no/such", "SandboxImageInvalid", "No such file"),
                ("docker-archive:/no/such", "SandboxImageInvalid", "No such file"),
                ("docker-archive:/etc", "SandboxImageInvalid", "regular file"),
                ("Python", "InvalidArgument", "lower-case"), ("", "InvalidArgument", "empty"),
                ("oci:", "InvalidArgument", "path is empty"), ("sha256:" + "0" * 64, "SandboxImageInvalid", "image ls"),
                ("sha256:0123456789ab", "SandboxImageInvalid", "image ls"), ("sha256:abc", "InvalidArgument", "12 to 64"),
                ("python@sha256:12", "InvalidArgument", "digest"), ("bad ref", "InvalidArgument", "not a repository's name")):
            with self.subTest(reference=reference):
                self.assertRefused(self.run_program("print(1)", "--image", reference), code, word)
                self.assertRefused(self.run_program("print(1)", "--check", "--image", reference), code, word)
                self.assertNothingStarted()

    def test_an_image_for_another_machine_is_refused(self):
        reference = self.python_image(architecture="m68k").write_layout(self.dir / "layout")
        self.assertRefused(self.run_program("print(1)", "--image", reference), "SandboxImageInvalid", "linux/m68k")

    def test_a_changed_image_is_another_sandbox(self):
        first = self.python_image(variables=["V=1"]).write_layout(self.dir / "layout")
        self.addCleanup(self.run_argv, [str(PROGRAM), "rm", "--all"])
        keep = ("--keep", "--thread", "t", "--image", first)
        one = self.run_json("import os; print(os.environ['V'])", *keep)
        self.assertTrue(self.listed()[0]["in_use"])
        self.assertRefused(self.image("rm", first), "SandboxBusy", "in use")
        again = self.run_json("import os; print(os.environ['V'])", *keep)
        self.assertEqual((one.json["stdout"], again.json["sandbox"]["reused"]), ("1\n", True))
        # What `exec` runs has them too.
        shown = self.run_argv([str(PROGRAM), "exec", "--scope", "cli", "--thread", "t", "--", "/bin/sh", "-c",
                               "echo $V"])
        self.assertEqual(shown.text, "1\n", shown)
        shutil.rmtree(self.dir / "layout")
        self.python_image(variables=["V=2"]).write_layout(self.dir / "layout")
        two = self.run_json("import os; print(os.environ['V'])", *keep)
        self.assertEqual((two.json["stdout"], two.json["sandbox"]["reused"]), ("2\n", False))
        removed = self.image("rm", "--unused", "--json")
        self.assertEqual([record["id"] for record in removed.json], [self.python_image(variables=["V=1"]).id])


class TheVerb(ImageCase):
    def test_import_prints_the_id_and_rm_takes_it_in_short(self):
        image = self.python_image()
        result = self.image("import", image.write_layout(self.dir / "layout"))
        self.assertEqual((result.status, result.text, result.err), (0, image.id + "\n", ""), result)
        self.assertIn(image.id[:19], self.image("ls").text)
        result = self.run_program("print(1)", "--image", image.id[:19])
        self.assertEqual((result.status, result.text), (0, "1\n"), result)
        self.assertEqual(self.image("rm", image.id[:19]).text, "removed 1\n")
        self.assertEqual(self.listed(), [])
        self.assertRefused(self.image("rm", image.id), "SandboxImageInvalid", "no image")
        self.assertEqual(self.image("rm", "--unused").text, "removed 0\n")

    def test_of_several_names_each_that_cannot_go_is_told_and_each_that_can_goes(self):
        unknown = self.image("rm", "no/a:1", "no/b:1", "no/c:1")
        self.assertRefused(unknown, "SandboxImageInvalid", "no/a:1", "no/b:1", "no/c:1")
        for as_json in (False, True):
            with self.subTest(as_json=as_json):
                image = Image([tar_of(lambda tar: tar_file(tar, "etc/x", b"x"))])
                self.image("import", image.write_layout(self.dir / f"layout-{as_json}"))
                result = self.image("rm", "no/a:1", image.id, "no/b:1", *(["--json"] if as_json else []))
                self.assertRefused(result, "SandboxImageInvalid", "no/a:1", "no/b:1")
                if as_json:
                    self.assertEqual([each["id"] for each in result.json], [image.id])
                else:
                    self.assertEqual(result.text, "removed 1\n")
                self.assertEqual(self.listed(), [])

    def test_progress_is_for_terminals(self):
        image = Image([tar_of(lambda tar: tar_file(tar, "etc/x", os.urandom(3 << 20))), tar_of(lambda tar: tar_file(tar, "etc/y", b"y"))])
        reference = image.write_layout(self.dir / "layout")
        argv = [str(PROGRAM), "image", "import", str(reference)]
        # One that draws nothing over: a line a step.
        for terminal in ({}, {"TERM": "dumb"}):
            status, said = self.on_terminal(argv, env=terminal)
            self.assertEqual((status, said.decode().splitlines()),
                             (0, ["casemate: unpacking layer 1 of 2, 3.0 MiB", "casemate: unpacking layer 2 of 2, 0.0 MiB",
                                  "casemate: writing to disk"]))
            self.assertEqual(self.image("rm", image.id).status, 0)
        status, said = self.on_terminal(argv, env={"TERM": "xterm"})
        self.assertEqual(status, 0, said)
        self.assertIn(b"\rcasemate: unpacking layer 1 of 2, 0.0 of 3.0 MiB\r", said)
        self.assertEqual(self.left_on_the_screen(said),
                         ["casemate: unpacking layer 1 of 2, 3.0 MiB", "casemate: unpacking layer 2 of 2, 0.0 MiB",
                          "casemate: writing to disk"])
        self.assertEqual(self.image("rm", image.id).status, 0)
        # Into a pipe: nothing but what is wanted.
        result = self.run_argv(argv)
        self.assertEqual((result.status, result.text, result.err), (0, image.id + "\n", ""), result)

    def test_a_terminal_sees_what_skopeo_has_written_so_far(self):
        layout = self.dir / "layout"
        Image([tar_of(lambda tar: tar_file(tar, "etc/x", b"x"))]).write_layout(layout)
        self.write("bin/skopeo", f"#!/bin/sh\nmkdir -p download/blobs/sha256\n"
                   f"truncate -s 5M download/oci-put-blob1\nread line < '{self.dir}/fifo'\n"
                   f"rm download/oci-put-blob1\ncp -r '{layout}/.' download\n"
                   f"sed -i s/latest/image/ download/index.json\n").chmod(0o755)
        os.mkfifo(self.dir / "fifo")
        seen = []

        def go_on(said):
            if not seen and b", 5.0 MiB" in said:
                seen.append(True)
                (self.dir / "fifo").write_text("on\n")
        status, said = self.on_terminal([str(PROGRAM), "image", "import", "example.org/a"], on_more=go_on,
                                        env={"PATH": f"{self.dir}/bin:/usr/bin:/bin", "TERM": "xterm"})
        self.assertEqual((status, seen), (0, [True]), said)
        self.assertEqual(self.left_on_the_screen(said),
                         ["casemate: fetching example.org/a:latest, 5.0 MiB", "casemate: unpacking layer 1 of 1, 0.0 MiB",
                          "casemate: writing to disk"])

    def test_an_image_cannot_write_on_the_terminal(self):
        """Nor is anything drawn wider than it, or counted over all there is."""
        odd = "\033]0;title\007\033[2J" + "x" * 60
        hostile = Image([tar_of(lambda tar: tar_file(tar, odd, os.urandom(3 << 20)))], variables=[f"A={odd}"])
        reference = hostile.write_archive(self.dir / "image.tar")
        status, said = self.on_terminal([str(PROGRAM), "image", "import", reference], env={"TERM": "xterm"})
        self.assertEqual(status, 0, said)
        self.assertRegex(said, rb"\A[\r\n -~]*\Z")
        for drawn in said.decode().replace("\n", "\r").split("\r"):
            self.assertLess(len(drawn), 80)
        for done, total in re.findall(rb", ([0-9.]+) of ([0-9.]+) MiB", said):
            self.assertLessEqual(float(done), float(total))
        # A long name of the operator's own is cut, and what failed begins a line of its own.
        status, said = self.on_terminal([str(PROGRAM), "image", "import", "example.org/" + "a" * 100],
                                        env={"PATH": "/nowhere", "TERM": "xterm"})
        self.assertEqual(status, 125, said)
        first, *others = self.left_on_the_screen(said)
        self.assertEqual(first, ("casemate: fetching example.org/" + "a" * 100)[:79])
        self.assertTrue(others[0].startswith("casemate: error: SandboxImageNotSupported: "), others)

    def test_help_shows_how_an_image_is_imported(self):
        self.assertRegex(self.image("--help").text, r"casemate image import docker-archive:\S+\n")

    def test_a_line_that_fits_nothing_is_refused(self):
        for words, part in (((), "import REF"), (("imprt", "x"), "import"), (("import",), "needs a reference"),
                            (("import", "a", "b"), "one reference"), (("ls", "x"), "lists all"), (("rm",), "--unused"),
                            (("rm", "x", "--unused"), "alone"), (("import", "host"), "used where it is"),
                            (("import", "dir:/usr"), "used where it is"),
                            (("import", "/x/py.tar"), "did you mean docker-archive:/x/py.tar?"),
                            (("import", "./py"), "did you mean dir:./py or oci:./py?")):
            with self.subTest(words=words):
                self.assertRefused(self.image(*words), "InvalidArgument", part)

    def test_FO_11_a_hostile_archive_is_refused_by_entry_and_leaves_nothing(self):
        """FO-11: the entry's name is shown escaped."""
        hostile = Image([tar_of(lambda tar: tar_file(tar, "../\033[31mout", b"x"))])
        result = self.image("import", hostile.write_layout(self.dir / "layout"))
        self.assertRefused(result, "SandboxImageInvalid", r"'../\x1b[31mout'", "layer 1")
        self.assertEqual(self.listed(), [])

    def test_without_skopeo_a_registry_reference_is_refused_with_what_to_install(self):
        result = self.run_program("print(1)", "--image", "python:3", env={"PATH": "/nowhere"})
        self.assertRefused(result, "SandboxImageNotSupported", "skopeo", "apt-get install -y skopeo")

    def test_a_signal_ends_an_import_and_leaves_nothing(self):
        skopeo = self.write("bin/skopeo", "#!/bin/sh\necho fetching > \"$FIFO\"\nexec sleep 1000\n")
        skopeo.chmod(0o755)
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start([str(PROGRAM), "image", "import", "example.org/a"],
                                 env={"PATH": f"{self.dir}/bin:/usr/bin:/bin", "FIFO": str(fifo)})
            self.assertEqual(fifo.read_text(), "fetching\n")
            process.send_signal(number)
            _, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, status, error)
            self.assertIn(b"SandboxCancelled", error)
            self.nothing_is_left_in_the_store()

    HOLE = 1 << 40

    def test_a_layer_that_is_longer_than_its_manifest_says_is_not_read(self):
        reference = Image([tar_of(lambda tar: tar_file(tar, "etc/x", b"x"))]).write_layout(self.dir / "layout", self.HOLE)
        result = self.image("import", reference)
        self.assertRefused(result, "SandboxImageInvalid", "its digest says", str(self.HOLE)[:3])
        self.assertEqual(self.listed(), [])

    def test_a_signal_ends_an_import_that_reads_what_stands_behind_a_layer(self):
        reference = Image([tar_of(lambda tar: tar_file(tar, "etc/x", b"x"))]).write_layout(
            self.dir / "layout", self.HOLE, self.HOLE)

        sent = []

        def end_it(said):
            # Once: a second one would end it whatever it does.
            if not sent and re.search(rb", [1-9][0-9.]* of ", said):
                sent.append(self.on_it.send_signal(signal.SIGTERM))
        status, said = self.on_terminal([str(PROGRAM), "image", "import", reference], on_more=end_it,
                                        env={"TERM": "xterm"})
        self.assertEqual(status, 143, said)
        self.assertIn(b"SandboxCancelled", said)
        self.nothing_is_left_in_the_store()

    @NEEDS_ROOT
    def test_a_full_disk_is_told_and_leaves_nothing(self):
        reference = self.python_image().write_archive(self.dir / "image.tar")
        self.store.mkdir(mode=0o700)
        script = ('mount -t tmpfs -o size=$1,mode=700 none "$2" || exit 77; shift; "$2" image import "$3"; status=$?; '
                  'find "$1/new" "$1/trash" "$1/images" -mindepth 1 >&2; exit $status')
        told = 0
        for size in ("64k", "1m", "8m", "20m", "40m"):
            result = self.run_argv(["unshare", "-m", "sh", "-c", script, "sh", size, str(self.store), str(PROGRAM),
                                    reference])
            if result.status == 77:
                self.skipTest("a tmpfs cannot be mounted here")
            self.assertRefused(result, "SandboxUnavailable", "is full", "casemate image rm")
            self.assertEqual(len(result.err.splitlines()), 1, result)
            told += 1
        self.assertEqual(told, 5)


if __name__ == "__main__":
    unittest.main()
