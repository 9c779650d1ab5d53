#!/usr/bin/python3
"""Writes the documents as they are installed: all in one directory, where a link to another of them
leads to it, and one to a file of the source tree is its text and the file's name.

write_docs.py OUTPUT_DIRECTORY DOCUMENT.md...
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s]+)\)")


def installed(text, names):
    """Links of the web and to places in the same document stay as they are."""
    def one(link):
        shown, target = link[1], link[2]
        path, hash_sign, place = target.partition("#")
        if not path or "://" in path:
            return link[0]
        name, tree = Path(path).name, path.removeprefix("../")
        if name in names and not tree.startswith("casemate/"):
            return f"[{shown}]({name}{hash_sign}{place})"
        return shown if shown in tree else f"{shown} ({tree})"
    # What stands in a fenced block is code: a C++ lambda looks like a link.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else LINK.sub(one, part) for part in parts)


def main(output, *documents):
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    names = {Path(document).name for document in documents}
    for document in map(Path, documents):
        (output / document.name).write_text(installed(document.read_text(), names))


if __name__ == "__main__":
    main(*sys.argv[1:])
