#!/usr/bin/python3
"""Writes the manual page of a built casemate from its own help, so that it cannot say anything else.

write_man.py PROGRAM OUTPUT.1.gz
"""

import gzip
import re
import subprocess
import sys
from pathlib import Path


def said(program, *words):
    return subprocess.run([program, *words], check=True, stdout=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL).stdout


def roff(text):
    """Text as it is: roff sees a command in a leading dot or quote, and an escape in a backslash."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def page(program):
    version = said(program, "--version").split()[-1]
    overview = said(program, "--help")
    listed = overview.split("Verbs:\n")[1].split("\n\n")[0]
    verbs = re.findall(r"^  (\w+) +(\S.*)$", listed, re.M)
    yield f'.TH CASEMATE 1 "" "casemate {roff(version)}" "User commands"'
    yield ".SH NAME\ncasemate \\- run programs that a model wrote, inside a boundary that you chose"
    yield ".SH SYNOPSIS\n.B casemate\n.I VERB\n[\\fIOPTION\\fR]..."
    yield ".SH VERBS"
    for verb, summary in verbs:
        yield f".TP\n.B {verb}\n{roff(summary)}"
    for verb, _ in verbs:
        yield f".SH {verb.upper()}\n.nf\n{roff(said(program, verb, '--help').rstrip())}\n.fi"
    yield ".SH SEE ALSO\nThe documents in /usr/share/doc/casemate."


def main():
    program, output = sys.argv[1:]
    text = "\n".join(page(program)) + "\n"
    # Without a time, so that the same program gives the same page.
    Path(output).write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main()
