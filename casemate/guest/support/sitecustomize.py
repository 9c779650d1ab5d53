# Loaded by the interpreter's own start-up because PYTHONPATH names this directory, before any file
# of the program's is on the import path. Only then does the current directory join it, so that
# shared modules import and a shared json.py or encodings/ cannot reach into start-up. Imports
# nothing that is not loaded already, except in a run with host tools: every program waits for this.
# What a pool asks for (WarmPool::imports) stands in a file beside that of a held program, which is a FIFO
# until it is written; it is gone before the program begins. Runs nobody else's sitecustomize: the image's would be one more thing that start-up depends on.
import os
import sys

if "CASEMATE_HOST_TOOLS" in os.environ:
    try:
        import casemate_tools
        del casemate_tools
    except Exception:
        pass  # the program starts, and hears of it when it imports the module itself


def import_ahead():
    try:
        program = sys.orig_argv[1]
        if os.stat(program).st_mode & 0o170000 != 0o010000:
            return
        path = os.path.dirname(program) + "/.imports"
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (AttributeError, IndexError, OSError):
        return
    names = os.read(file, 65536).decode().split()
    os.close(file)
    os.unlink(path)
    for name in names:
        try:
            __import__(name)
        except BaseException:
            pass  # the program hears of it when it imports the module itself


import_ahead()
try:
    sys.path.insert(0, os.getcwd())
except OSError:
    pass  # the directory is gone: the program starts, and imports what it can
del import_ahead, os, sys
