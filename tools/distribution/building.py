"""Builds source distributions and wheels that are byte for byte the same whenever and wherever a commit is built.

Guaranteed: building from the tree and from its source distribution, unpacked elsewhere, results in the same wheel.
Times in the archives are those of the last commit, or SOURCE_DATE_EPOCH. Reproducibility depends on the locked version
of hatchling, which writes the archives, and on the zlib of this Python, which compresses them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "kubeshard", ROOT / "apiserver", ROOT / "lab")
"""The source folders of the distributions, each after those that it depends on."""


class CannotBuild(Exception):
    """The packages cannot be built. The message says what to do."""


@dataclass(frozen=True)
class Built:
    """The packages of one distribution."""

    source: Path
    wheel: Path

    @property
    def name(self) -> str:
        return self.wheel.name.split("-")[0]

    @property
    def stem(self) -> str:
        """The wheel's name up to and including the version."""
        return "-".join(self.wheel.name.split("-")[:2])


def build(source: Path, folder: Path, epoch: int) -> Built:
    """Builds and checks one distribution. Raises CannotBuild if the archives are not as expected."""
    hatch(source, folder, epoch, "sdist", "wheel")
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with TemporaryDirectory(prefix="kubeshard-sdist-") as place:
        with tarfile.open(archive) as unpacked:
            if hasattr(tarfile, "data_filter"):
                unpacked.extractall(place, filter="data")
            else:  # before Python 3.11.4
                unpacked.extractall(place)  # noqa: S202 - the archive is our own
        (tree,) = Path(place).iterdir()
        hatch(tree, Path(place), epoch, "wheel")
        if digest(Path(place, wheel.name)) != digest(wheel):
            raise CannotBuild(f"{archive.name} makes another {wheel.name} than the tree that it was made of")
    return Built(archive, wheel)


def hatch(source: Path, folder: Path, epoch: int, *targets: str) -> None:
    chosen = [word for target in targets for word in ("--target", target)]
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), *chosen]
    variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(  # noqa: S603 - hatchling
        command, cwd=source, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotBuild(f"{source.name}: {done.stderr.strip() or done.stdout.strip()}")


def source_date_epoch() -> int:
    """SOURCE_DATE_EPOCH, or else the time of the last commit, in seconds. Raises CannotBuild."""
    given = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct")
    if not given.isdecimal():
        raise CannotBuild("SOURCE_DATE_EPOCH: here is no git repository to take it from; set it, in seconds")
    return int(given)


def uncommitted() -> bool:
    """Whether the tree has uncommitted changes."""
    return bool(git("status", "--porcelain", "--", *(str(source) for source in SOURCES)))


def git(*arguments: str) -> str:
    """The output of git, or nothing if there is no repository or no git."""
    try:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return ""


def digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


def write_digests(folder: Path) -> None:
    """Writes SHA256SUMS of all files in the folder, for `sha256sum --check`."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    (folder / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path.name}\n" for path in files))
