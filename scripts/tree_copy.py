"""A copy of the tree as it stands, for scripts that break it on purpose."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def copy_tree(copy):
    """What git knows and what is new, less what it ignores."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
                            check=True, stdout=subprocess.PIPE).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def broken(source, text):
    """Gives `source` another text while the block lasts."""
    return _Broken(source, text)


class _Broken:
    def __init__(self, source, text):
        self.source, self.text = source, text

    def __enter__(self):
        self.whole = self.source.read_text()
        self.source.write_text(self.text)

    def __exit__(self, *_):
        self.source.write_text(self.whole)
