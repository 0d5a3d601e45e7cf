"""Runs tests with the oldest dependencies that the packages allow: `make test-lowest`.

    python tools/test_lowest.py -- -m "not system" tests

uv resolves each direct dependency, including those of the extras, to the lower bound in `pyproject.toml`. They are
installed into a virtual environment of their own, `.venv-lowest`, which is kept, with the test tools of this one.
Every module of the three packages is imported there, then the tests are run. Arguments after `--` are passed to pytest.

Nothing is compiled: a version without a wheel for this Python is not one that users can install.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv-lowest"
UV = str(Path(sys.executable).with_name("uv"))
PROJECTS = ("kubeshard/pyproject.toml", "apiserver/pyproject.toml", "lab/pyproject.toml")
TOOLS = ("aiohttp", "hypothesis", "pytest", "pytest-asyncio", "pytest-xdist")
"""What the tests import; their bounds are of no interest."""
SOURCES = ("kubeshard/src", "apiserver/src", "lab/src")

IMPORTS = """
import importlib, pkgutil
import kubeshard, kubeshard_apiserver, kubeshard_lab
packages = kubeshard, kubeshard_apiserver, kubeshard_lab
found = [m.name for p in packages for m in pkgutil.walk_packages(p.__path__, p.__name__ + ".")]
for name in found:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(f"imported {len(found)} modules")
"""


def lowest() -> str:
    """The oldest versions that the projects allow, as pip reads them."""
    resolved = subprocess.run(  # noqa: S603
        [
            *(UV, "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--all-extras"),
            *("--python", sys.executable, "--no-header", "--no-annotate", "--no-emit-index-url"),
            *("--no-emit-package", "kubeshard", "--no-emit-package", "kubeshard-apiserver"),
            *("--no-emit-package", "kubeshard-lab", *PROJECTS),
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return resolved.stdout


def environment() -> str:
    """The interpreter of the virtual environment, which is recreated if its packages are others now."""
    packages = lowest() + "".join(f"{tool}=={version(tool)}\n" for tool in TOOLS)
    python, stamp = FOLDER / "bin" / "python", FOLDER / ".installed"
    digest = hashlib.sha256((sys.version + packages).encode()).hexdigest()
    if not (stamp.is_file() and stamp.read_text() == digest):
        print(f"installing the oldest dependencies into {FOLDER.name}", flush=True)
        _run(UV, "venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER))
        listed = FOLDER / "requirements.txt"
        listed.write_text(packages)
        _run(
            UV,
            "pip",
            "install",
            "--quiet",
            "--no-build",
            "--python",
            str(python),
            "--requirement",
            str(listed),
        )
        stamp.write_text(digest)
    return str(python)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)  # noqa: S603 - uv


def main() -> None:
    pytest = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else sys.argv[1:]
    python = environment()
    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / source) for source in SOURCES)
    _run(python, "-c", IMPORTS)
    plugin = ("-p", "kubeshard_apiserver.testing.plugin")  # the packages are not installed
    tested = subprocess.run([python, "-m", "pytest", *plugin, *pytest], cwd=ROOT, check=False)  # noqa: S603
    sys.exit(tested.returncode)


if __name__ == "__main__":
    main()
