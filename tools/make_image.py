"""Makes the container image without Docker, as an OCI layout in `build/image/`: `make image`.

The same commit and the same Debian packages make the same image, bit for bit. All times are those of the last commit
(or SOURCE_DATE_EPOCH), and wheels are pinned by their hashes in requirements-image.txt. The versions of Debian's
packages are recorded in `build/image/debian-packages.txt` and in the image; Debian's security updates change them, and
therefore the image. Reproducibility also depends on the local versions of umoci and Python, which write and compress
the archive.

Needs root, and Debian's mmdebstrap and umoci. With --rootfs FOLDER it makes only the root file system, for the
Containerfile; that needs no umoci.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from distribution.building import ROOT, SOURCES, CannotBuild, git, hatch, source_date_epoch, uncommitted
from image import rootfs
from image.content import USER
from image.layout import MACHINES, Labels, describe, write_layer, write_layout
from kubeshard.version import __version__

IMAGE = ROOT / "build" / "image"
LARGEST = 80 * 10**6
"""The largest acceptable number of bytes to fetch."""
PACKAGES = {"dpkg-deb": "dpkg", "nsenter": "util-linux", "unshare": "util-linux"}
"""The Debian packages of programs whose package has another name."""


def missing(*programs: str) -> str:
    """What this machine lacks and what to do about it; empty if nothing is missing."""
    if sys.platform != "linux" or os.uname().machine not in MACHINES:
        return f"images are made on Linux, on {' or '.join(MACHINES)}"
    lacking = [program for program in programs if not shutil.which(program)]
    if lacking:
        packages = sorted({PACKAGES.get(program, program) for program in lacking})
        return f"{', '.join(lacking)}: not installed; on Debian: apt-get install {' '.join(packages)}"
    if os.geteuid() != 0:
        return "only root can create the files of another system: run it as root"
    return ""


def make_rootfs(target: Path, epoch: int, place: Path) -> str:
    """Fills a new folder. Returns the Debian packages in it, one per line."""
    # Clusters run the lab's experiments and examples, too, for which these packages are enough.
    for source in SOURCES:
        hatch(source, place, epoch, "wheel")
    wheels = sorted(place.glob("*.whl"))
    return "".join(f"{it.name} {it.version}\n" for it in rootfs.make(target, wheels, epoch))


def make_image(target: Path, epoch: int, place: Path) -> None:
    """Replaces the folder. Raises CannotBuild, CalledProcessError."""
    from image.sbom import bill_of_image  # the Containerfile, which makes no bill, has fewer packages

    root, layer, layout = place / "rootfs", place / "layer.tar", place / "image"
    packages = make_rootfs(root, epoch, place)
    write_layer(root, layer, epoch)
    project = tomllib.loads((ROOT / "kubeshard" / "pyproject.toml").read_text())["project"]
    revision = git("rev-parse", "HEAD") + ("-dirty" if uncommitted() else "")
    write_layout(layout, layer, __version__, Labels(__version__, revision, project["description"]), epoch)
    size = describe(layout).size
    if size > LARGEST:
        raise CannotBuild(f"the image has {size / 1e6:.1f} MB; at most {LARGEST / 1e6:.0f} are allowed")
    (layout / "debian-packages.txt").write_text(packages)
    listed = [(name, of) for name, of in (line.split() for line in packages.splitlines())]
    (layout / "sbom.cdx.json").write_text(bill_of_image(root, listed, version=__version__, epoch=epoch))
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(layout, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rootfs", type=Path, metavar="FOLDER", help="make only this new folder")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lacks = missing("mmdebstrap", "dpkg-deb", *(() if chosen.rootfs else ("umoci",)))
    if lacks:
        sys.exit(f"cannot make the image: {lacks}")
    began = time.monotonic()
    os.umask(0o022)
    with TemporaryDirectory(prefix="kubeshard-image-") as place:
        try:
            epoch = source_date_epoch()
            if chosen.rootfs:
                make_rootfs(chosen.rootfs, epoch, Path(place))
                return
            make_image(IMAGE, epoch, Path(place))
        except CannotBuild as error:
            sys.exit(f"FAILED: {error}")
        except subprocess.CalledProcessError as error:
            sys.exit(f"FAILED: {error.cmd[0]} ended with {error.returncode}: {' '.join(error.cmd)}")
    made = describe(IMAGE)
    print(f"{IMAGE.relative_to(ROOT)}: {made.digest}, {made.size / 1e6:.1f} MB to fetch, user {USER}")
    print(f"({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
