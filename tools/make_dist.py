"""Makes the release artifacts in `dist/` and tries them out as a user would: `make dist`.

| in dist/ | |
|---|---|
| wheels and source distributions of the three distributions | the same bytes for the same commit |
| a `.cdx.json` for each | the bill of materials of an environment into which only this was installed |
| `licences.txt` | the licences of all dependencies, with their texts |
| `changes.md` | the changelog's section for the version |
| `SHA256SUMS` | the digests of all of these |

The wheels equal those built from the source distributions, and have been tried out in a new virtual environment
(`check_wheels`). The content of `dist/` is replaced as a whole, and only if everything succeeded.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name

from check_wheels import Environment, use_api_server, use_kubeshard, use_lab
from distribution.building import (
    ROOT,
    SOURCES,
    CannotBuild,
    build,
    digest,
    source_date_epoch,
    uncommitted,
    write_digests,
)
from distribution.changes import NoEntry, entry
from distribution.licences import NoLicence, installed, licences
from distribution.sbom import bill_of
from kubeshard.version import __version__

OURS = ("kubeshard", "kubeshard-apiserver", "kubeshard-lab")


def make(dist: Path, place: Path) -> None:
    """Fills the empty `dist`; `place` is temporary. Raises CannotBuild, NoEntry, NoLicence, CalledProcessError."""
    (dist / "changes.md").write_text(entry((ROOT / "CHANGELOG.md").read_text(), __version__))
    epoch = source_date_epoch()
    environment = Environment(place)
    for source, use in zip(SOURCES, (use_kubeshard, use_api_server, use_lab), strict=True):
        folder = place / f"built-{source.name}"
        built = build(source, folder, epoch)
        environment.install(built.wheel)
        use(environment)
        found = installed(environment.site_packages)
        subject = found.pop(canonicalize_name(built.name))
        bill = bill_of(subject, found.values(), wheel_digest=digest(built.wheel), epoch=epoch)
        (dist / f"{built.stem}.cdx.json").write_text(bill)
        shutil.move(built.source, dist)
        shutil.move(built.wheel, dist)
    (dist / "licences.txt").write_text(licences(environment.site_packages, ours=OURS))
    write_digests(dist)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    with TemporaryDirectory(prefix="kubeshard-dist-") as folder:
        made = Path(folder, "dist")
        made.mkdir()
        try:
            make(made, Path(folder))
        except (CannotBuild, NoEntry, NoLicence) as error:
            sys.exit(f"FAILED: {error}")
        except subprocess.CalledProcessError as error:
            sys.exit(f"FAILED: {' '.join(error.cmd)} ended with {error.returncode}")
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        shutil.move(made, dist)
    for file in sorted(dist.iterdir()):
        print(f"dist/{file.name}: {file.stat().st_size / 1024:.0f} KiB")
    if uncommitted():
        print("NOT FOR RELEASE: the tree has uncommitted changes")
    print(f"all three distributions passed all checks ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
