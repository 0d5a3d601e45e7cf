"""What is in the image, and how it is started.

The root file system contains only what kubeshard needs to run: Debian's Python and the libraries that it loads,
certificate authorities, the locked dependencies, and kubeshard. There is no shell, no package manager and no setuid
program. The user that it runs as cannot write anything in it and does not need to: it works with a read-only root and
without /tmp.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SUITE = "bookworm"
OFFICIAL_SOURCES = (
    "deb http://deb.debian.org/debian bookworm main",
    "deb http://deb.debian.org/debian bookworm-updates main",
    "deb http://deb.debian.org/debian-security bookworm-security main",
)
PACKAGES = ("base-files", "ca-certificates", "python3")
"""These packages and their dependencies."""

PYTHON = "3.11"
"""Debian's Python version, for which wheels are chosen."""
LOCK = ROOT / "requirements-image.txt"
SITE_PACKAGES = f"usr/local/lib/python{PYTHON}/dist-packages"

USER = 65532
ENTRY_POINT = ("/usr/local/bin/kubeshard",)
"""As process 1, `kubeshard` splits into a small init and the program (`kubeshard.runtime.init_process`)."""
ARGUMENTS = ("--help",)
"""The default arguments."""
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin", "LANG": "C.UTF-8"}
TITLE = "kubeshard"
LICENCE = "Apache-2.0"

_KEPT = (
    "etc/debian_version",
    "etc/os-release",
    "lib64/*",
    "lib/*-linux-gnu/*",
    "etc/python3*",
    "usr/bin/python3",
    f"usr/bin/python{PYTHON}",
    "usr/lib/*-linux-gnu/*",
    "usr/lib/os-release",
    f"usr/lib/python{PYTHON}/*",
    "usr/lib64/*",
    "usr/share/ca-certificates/*",
    "usr/share/doc/*/copyright",
)
_LEFT_OUT = (
    "*/__pycache__/*",
    "usr/lib/*-linux-gnu/audit/*",
    "usr/lib/*-linux-gnu/gconv/*",
    "usr/lib/*-linux-gnu/perl*",
    "*/security/pam*",
    f"usr/lib/python{PYTHON}/config-*",
    f"usr/lib/python{PYTHON}/distutils/*",
    f"usr/lib/python{PYTHON}/ensurepip/*",
    f"usr/lib/python{PYTHON}/idlelib/*",
    f"usr/lib/python{PYTHON}/lib2to3/*",
    f"usr/lib/python{PYTHON}/pydoc_data/*",
    f"usr/lib/python{PYTHON}/test/*",
    f"usr/lib/python{PYTHON}/turtledemo/*",
)


def is_kept(path: str) -> bool:
    """Whether a file of Debian's packages, named from the root without a leading slash, is in the image."""
    return any(fnmatchcase(path, it) for it in _KEPT) and not any(fnmatchcase(path, it) for it in _LEFT_OUT)
