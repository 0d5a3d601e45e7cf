"""Makes an OCI image layout with one layer from a root file system, byte for byte the same for the same files."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from image.content import ARGUMENTS, ENTRY_POINT, ENVIRONMENT, LICENCE, TITLE, USER

_ANNOTATION = "org.opencontainers.image."
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Labels:
    """The image's metadata, for the OCI annotations."""

    version: str
    revision: str
    description: str

    def named(self, created: str) -> dict[str, str]:
        values = {
            "title": TITLE,
            "description": self.description,
            "version": self.version,
            "revision": self.revision,
            "created": created,
            "licenses": LICENCE,
        }
        return {_ANNOTATION + name: value for name, value in values.items() if value}


def write_layer(root: Path, layer: Path, epoch: int) -> None:
    """An archive of the files, all owned by root, none younger than the commit."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = min(int(entry.mtime), epoch)
        if not entry.issym():
            # Readable by everybody, writable only by root, and without setuid or setgid bits.
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o111 else 0o644
        return entry

    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, str(path.relative_to(root)), recursive=False, filter=plain)


def write_layout(folder: Path, layer: Path, tag: str, labels: Labels, epoch: int) -> None:
    """A new folder with the image under this tag. Raises CalledProcessError."""
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    image = f"{folder}:{tag}"
    named = labels.named(created)
    umoci("init", "--layout", str(folder))
    umoci("new", "--image", image)
    history = ("--history.created", created, "--history.created_by", "make image")
    umoci("raw", "add-layer", "--image", image, *history, str(layer))
    umoci(
        *("config", "--image", image, "--no-history", "--created", created, "--os", "linux"),
        *("--architecture", MACHINES[os.uname().machine], "--config.user", f"{USER}:{USER}"),
        *(word for argument in ENTRY_POINT for word in ("--config.entrypoint", argument)),
        *(word for argument in ARGUMENTS for word in ("--config.cmd", argument)),
        *("--config.workingdir", "/"),
        *_pairs("--config.env", ENVIRONMENT),
        *_pairs("--config.label", named),
        *_pairs("--manifest.annotation", named),
    )
    umoci("gc", "--layout", str(folder))


def umoci(*arguments: str) -> None:
    command = ("umoci", "--log", "error", *arguments)
    subprocess.run(command, check=True)  # noqa: S603 - Debian's


def _pairs(option: str, values: Mapping[str, str]) -> list[str]:
    return [word for name, value in sorted(values.items()) for word in (option, f"{name}={value}")]


@dataclass(frozen=True)
class Described:
    """An image in a layout."""

    digest: str
    size: int
    """The number of bytes to fetch: manifest, configuration and layers."""
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]


def describe(folder: Path) -> Described:
    """The only image of the layout."""
    (entry,) = json.loads((folder / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(folder, entry["digest"]).read_text())
    parts = (manifest["config"], *manifest["layers"])
    config = json.loads(blob(folder, manifest["config"]["digest"]).read_text())
    return Described(entry["digest"], entry["size"] + sum(it["size"] for it in parts), config, manifest)


def blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / Path(*digest.split(":"))
