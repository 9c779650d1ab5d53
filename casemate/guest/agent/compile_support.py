"""compile_support.py SOURCE OUTPUT: a module of /casemate/python, compiled for this Python."""

import os
import py_compile
import sys

source, output = sys.argv[1:]
py_compile.compile(
    source, cfile=output, dfile="/casemate/python/" + os.path.basename(source), doraise=True,
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
