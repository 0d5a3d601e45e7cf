"""The root file system of the image: Debian's part, the locked dependencies, kubeshard, and bytecode of all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from distribution.building import digest
from image.content import LOCK, PYTHON, SITE_PACKAGES, USER
from image.debian import Package, unpack

_SCRIPT = """\
#!/usr/bin/python3 -I
from kubeshard.cli import main

main()
"""
_FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\nkubeshard:x:{USER}:{USER}:kubeshard:/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nkubeshard:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
    "usr/local/bin/kubeshard": _SCRIPT,
}
_EMPTY = ("dev", "proc", "run", "sys")
"""Where a container runtime mounts file systems."""


def make(root: Path, wheels: Sequence[Path], epoch: int) -> list[Package]:
    """Fills a new folder. Returns Debian's packages in it. Raises CalledProcessError."""
    packages = unpack(root, epoch)
    _install(root / SITE_PACKAGES, wheels)
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if "bin/" in name else 0o644)
    for name in _EMPTY:
        (root / name).mkdir(exist_ok=True)
    _trust(root)
    _compile(root)
    return packages


def _install(folder: Path, wheels: Sequence[Path]) -> None:
    """Installs the locked dependencies and these wheels, of one folder: only files whose hashes are known."""
    named = [(*wheel.name.split("-")[:2], digest(wheel)) for wheel in wheels]
    ours = folder.parent / "kubeshard.txt"
    folder.mkdir(parents=True)
    ours.write_text("".join(f"{name}=={version} --hash=sha256:{sha}\n" for name, version, sha in named))
    common = (
        *(
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            "--no-deps",
            "--require-hashes",
        ),
        *("--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}", f"--target={folder}"),
        *(f"--platform={tag}" for tag in platforms(os.uname().machine)),
    )
    local = ("--no-index", "--find-links", str(wheels[0].parent))
    for wanted in (("--requirement", str(LOCK)), ("--requirement", str(ours), *local)):
        subprocess.run([sys.executable, "-m", "pip", *common, *wanted], check=True)  # noqa: S603 - pip
        # Scripts: their first line names the Python that installed them.
        shutil.rmtree(folder / "bin", ignore_errors=True)
    ours.unlink()
    for record in folder.glob("*.dist-info/RECORD"):
        forget_commands(record)


def forget_commands(record: Path) -> None:
    """Removes the deleted scripts from the list of a wheel's installed files."""
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if not line.startswith("../../bin/")))


def platforms(machine: str) -> list[str]:
    """The platform tags of wheels that run on the image's C library, glibc 2.36."""
    return [f"manylinux_2_{minor}_{machine}" for minor in range(36, 4, -1)] + [
        f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")
    ]


def _trust(root: Path) -> None:
    """Writes the certificate authorities to the file in which OpenSSL looks for them."""
    target = root / "etc/ssl/certs/ca-certificates.crt"
    target.parent.mkdir(parents=True)
    found = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    target.write_text("".join(path.read_text().strip() + "\n" for path in found))
    shutil.rmtree(root / "usr/share/ca-certificates")


def _compile(root: Path) -> None:
    """The file system is read-only, so it is compiled now. The hash seed orders constant sets."""
    folders = (f"/usr/lib/python{PYTHON}", f"/{SITE_PACKAGES}")
    command = ("chroot", str(root), f"/usr/bin/python{PYTHON}", "-m", "compileall", "-q")
    modes = ("--invalidation-mode", "unchecked-hash")
    done = subprocess.run(  # noqa: S603 - the image's Python
        [*command, *modes, *folders],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONHASHSEED": "0"},
        check=False,
    )
    if done.returncode > 1:  # 1: some packages contain files that are not valid for this Python version
        raise subprocess.CalledProcessError(done.returncode, command)
