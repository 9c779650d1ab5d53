"""Downloads a package with pip, as a program does that needs a library: pip goes through the sandbox's
proxy by itself. INDEX [PACKAGE], by default the small package "six" of pypi.org:

    casemate run --allow pypi.org --allow files.pythonhosted.org examples/egress_download.py
"""

import subprocess
import sys
from pathlib import Path

index = sys.argv[1] if len(sys.argv) > 1 else "https://pypi.org/simple/"
package = sys.argv[2] if len(sys.argv) > 2 else "six"
subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--isolated", "--disable-pip-version-check", "--no-deps",
                "--index-url", index, package], check=True)
for path in Path().glob("*.whl"):
    print("downloaded", path.name)
