"""Builds the programs of a control plane from their Go modules.

    python tools/build_control_plane.py [--release RELEASE] [PROGRAM ...]    # `make kube`; without names: all

Guaranteed: existing programs are not built again; a program appears in the cache folder only when it is complete, so an
interrupted build leaves nothing half-done; versions and checksums are those of the go.mod and go.sum files next to this
one. Needs Go 1.26 or newer and access to Go modules; nothing is installed outside the cache folder and Go's own caches.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kubeshard.core.errors import ConfigurationError, KubeshardError
from kubeshard_apiserver.testing.assets import (
    ASSETS_VARIABLE,
    CORE_PROGRAMS,
    OTHER_RELEASES,
    RELEASE,
    cache_folder,
)

_MODULES = Path(__file__).parent / "control_plane"
_GO_NEEDED = (1, 26)
_GO_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}


class Program(NamedTuple):
    module: str
    """The folder of the go.mod that pins it."""
    package: str
    minutes: float
    """How long a build takes on two cores if Go's caches are empty."""


PROGRAMS: Mapping[str, Program] = {
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3", 1),
    "kube-apiserver": Program("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 5),
    "kubectl": Program("kubernetes", "k8s.io/kubernetes/cmd/kubectl", 1),
    "kube-controller-manager": Program("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", 1.5),
    "kube-scheduler": Program("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", 0.5),
    "kwok": Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 1.5),
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm", 1),
}


OF_OTHER_RELEASES = CORE_PROGRAMS
"""What is built of them."""

_HELM = "helm.sh/helm/v3/pkg/chartutil"


class BuildFailed(KubeshardError):
    """`go build` failed. The message contains the end of its output."""


def build(programs: Sequence[str] = (), release: str = RELEASE) -> Path:
    """Build what is missing, by default all; returns the folder. Raises ConfigurationError, BuildFailed."""
    if release not in (RELEASE, *OTHER_RELEASES):
        known = ", ".join((RELEASE, *OTHER_RELEASES))
        raise ConfigurationError(f"no such release: {release} (there are {known})")
    available = tuple(PROGRAMS) if release == RELEASE else OF_OTHER_RELEASES
    if unknown := [name for name in programs if name not in available]:
        raise ConfigurationError(f"no such program: {', '.join(unknown)} (there are {', '.join(available)})")
    folder = cache_folder(release)
    missing = [name for name in programs or available if not os.access(folder / name, os.X_OK)]
    if not missing:
        print(f"the control plane {release} is complete in {folder}")
        return folder
    go = _go()
    minutes = sum(PROGRAMS[name].minutes for name in missing)
    print(f"building {', '.join(missing)} ({release}) into {folder}")
    print(f"the first time this takes about {minutes:.0f} minutes on two cores; later it is there")
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(missing, 1):
        began = time.monotonic()
        print(f"[{number}/{len(missing)}] {name} ...", end=" ", flush=True)
        _build(go, name, folder, release)
        print(f"{time.monotonic() - began:.0f} s", flush=True)
    return folder


def _build(go: str, name: str, folder: Path, release: str) -> None:
    program = PROGRAMS[name]
    module = program.module
    if release != RELEASE and module == "kubernetes":
        module += "-" + release.removeprefix("v").rpartition(".")[0]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-", ignore_cleanup_errors=True) as workplace:
        target = Path(workplace) / name
        command = [
            go,
            "build",
            "-trimpath",
            "-mod=readonly",
            f"-ldflags={_linker_flags(release)}",
            "-o",
            str(target),
            program.package,
        ]
        output = Path(workplace) / "output"
        with output.open("wb") as sink, _interrupt_later() as interrupted:
            compiler = subprocess.Popen(  # noqa: S603 - go
                command,
                cwd=_MODULES / module,
                env={**os.environ, **_GO_ENVIRONMENT, "GOTMPDIR": workplace},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            if interrupted:
                raise KeyboardInterrupt
            _wait_for(compiler)
        finally:
            _end(compiler)
        if compiler.returncode != 0:
            print("failed", flush=True)
            last = "\n".join(output.read_text(errors="replace").strip().splitlines()[-15:])
            raise BuildFailed(f"go build of {name} failed:\n{last}")
        target.replace(folder / name)


@contextmanager
def _interrupt_later() -> Iterator[list[int]]:
    """Delays a Ctrl-C while a program is being started, because until then it is unknown which program to stop."""
    kept: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: kept.append(number))
    try:
        yield kept
    finally:
        signal.signal(signal.SIGINT, previous)


def _wait_for(compiler: subprocess.Popen[bytes]) -> None:
    """Waits for the compiler. On a terminal, the elapsed seconds are shown after the program's name."""
    began = time.monotonic()
    while compiler.poll() is None:
        time.sleep(0.1)
        if sys.stdout.isatty():
            seconds = f"{time.monotonic() - began:.0f} s"
            print(seconds, end="\b" * len(seconds), flush=True)


def _end(compiler: subprocess.Popen[bytes]) -> None:
    """After Ctrl-C `go` ends its own children, but not when it is killed."""
    if compiler.poll() is not None:
        return
    compiler.send_signal(signal.SIGINT)
    try:
        compiler.wait(10)
    except subprocess.TimeoutExpired:
        compiler.kill()
        compiler.wait()


def _linker_flags(release: str) -> str:
    """Flags that set the version: without one, the server reports v0.0.0, which misleads clients."""
    major, minor, _ = release.removeprefix("v").split(".")
    values = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    known = [f"{package}.{name}={value}" for package in packages for name, value in values.items()]
    # For which version Helm renders charts, if no cluster says.
    known += [f"{_HELM}.k8sVersionMajor={major}", f"{_HELM}.k8sVersionMinor={minor}"]
    return " ".join(["-s", "-w", *(f"-X {each}" for each in known)])


def _go() -> str:
    wanted = ".".join(map(str, _GO_NEEDED))
    ways_out = (
        f"install Go {wanted} or newer, or set {ASSETS_VARIABLE} to a folder with etcd, kube-apiserver and kubectl "
        "(as setup-envtest provides them)"
    )
    go = shutil.which("go")
    if go is None:
        raise ConfigurationError(f"building the control plane needs Go: {ways_out}")
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    version = re.search(r"go(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < _GO_NEEDED:
        raise ConfigurationError(f"{said.strip() or go} is too old: {ways_out}")
    return go


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Builds the programs of a control plane from their Go modules."
    )
    parser.add_argument("--release", default=RELEASE, help=f"one of {RELEASE}, {', '.join(OTHER_RELEASES)}")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="only these")
    given = parser.parse_args()
    try:
        build(given.programs, given.release)
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; what was finished stays")
    except KubeshardError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


if __name__ == "__main__":
    main()
