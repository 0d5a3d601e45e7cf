"""Debian's part of the root file system: selected files of a few packages. Nothing in them is executed.

Packages come from this machine's apt sources and are verified with Debian's signatures. None of that configuration gets
into the image. If this machine has no source for the suite (because it runs another release), the official one is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from image.content import OFFICIAL_SOURCES, PACKAGES, SUITE, is_kept

_DOCUMENTATION = "usr/share/doc/"


@dataclass(frozen=True, order=True)
class Package:
    """A package of which the image contains files."""

    name: str
    version: str
    control: str


def unpack(root: Path, epoch: int) -> list[Package]:
    """Fills a new folder with the kept files. Raises CalledProcessError."""
    with TemporaryDirectory(prefix="kubeshard-debian-") as folder:
        settings = Path(folder, "apt.conf")
        settings.write_text(acquiring())
        command = [
            *("mmdebstrap", "--quiet", "--variant=extract", "--mode=root", "--format=directory"),
            *("--skip=cleanup/apt", f"--include={','.join(PACKAGES)}", f"--aptopt={settings}"),
            *(SUITE, str(root), *(sources() or OFFICIAL_SOURCES)),
        ]
        subprocess.run(command, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}, check=True)  # noqa: S603
    archives = sorted((root / "var/cache/apt/archives").glob("*.deb"))
    found = sorted(package for archive in archives if (package := _kept_part(archive)))
    _remove_others(root)
    _write_status(root, found)
    return found


def sources() -> list[str]:
    """This machine's apt sources for the suite."""
    fields = ("$(CREATED_BY)", "$(CODENAME)", "$(REPO_URI)", "$(RELEASE)", "$(COMPONENT)")
    rows = (
        line.split("|") for line in said("apt-get", "indextargets", "--format", "|".join(fields)).splitlines()
    )
    found = {
        f"deb {uri} {release} {component}"
        for made_by, codename, uri, release, component in rows
        if made_by == "Packages" and codename.startswith(SUITE) and component == "main"
    }
    return sorted(found)


def acquiring() -> str:
    """The settings with which this machine's apt fetches packages: proxy and timeouts."""
    lines = said("apt-config", "dump", "--format", '%f "%v";%n', "Acquire").splitlines(keepends=True)
    return "".join(line for line in lines if ' ""' not in line and "IndexTargets" not in line)


def said(*command: str) -> str:
    """The output of a program. Raises CalledProcessError."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603


def _kept_part(archive: Path) -> Package | None:
    """The package, or None if only its documentation would be left."""
    listed = (
        line.split(maxsplit=5)[-1] for line in said("dpkg-deb", "--contents", str(archive)).splitlines()
    )
    paths = (entry.partition(" -> ")[0].removeprefix("./") for entry in listed)
    if not any(
        is_kept(path) and not path.startswith(_DOCUMENTATION) for path in paths if not path.endswith("/")
    ):
        return None
    control = said("dpkg-deb", "--field", str(archive))
    name, version = (
        said("dpkg-deb", "--field", str(archive), field).strip() for field in ("Package", "Version")
    )
    return Package(name, version, control)


def _remove_others(root: Path) -> None:
    for path in sorted(_below(root), reverse=True):  # a folder's content before the folder
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif not is_kept(str(path.relative_to(root))):
            path.unlink()


def _below(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *files))


def _write_status(root: Path, packages: list[Package]) -> None:
    """Writes the package list where scanners expect it in images without a package manager."""
    status = root / "var/lib/dpkg/status.d"
    shutil.rmtree(status, ignore_errors=True)
    status.mkdir(parents=True)
    for package in packages:
        (status / package.name).write_text(package.control)
