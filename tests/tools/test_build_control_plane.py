"""The build of the control plane, with a `go` that is a script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from build_control_plane import PROGRAMS, BuildFailed, build
from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.testing.assets import RELEASE, cache_folder, find_assets
from kubeshard_apiserver.testing.child import is_running

pytestmark = pytest.mark.system

BUILD = str(Path(__file__).parents[2] / "tools" / "build_control_plane.py")
COMPILES = 'echo "$CGO_ENABLED $*" > "$target"; chmod +x "$target"'


class Go:
    """A `go` first on PATH that reports its version, counts its builds and then does what it is told."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "go"
        self._builds = folder / "builds"
        self._places = folder / "places"
        self.does(COMPILES)

    def does(self, build: str, version: str = "go1.26.1") -> None:
        self._program.write_text(
            f'#!/bin/sh\nif [ "$1" = version ]; then echo "go version {version} linux/amd64"; exit; fi\n'
            f'echo "$@" >> {self._builds}\n'
            f'basename "$PWD" >> {self._places}\n'
            'while [ "$1" != -o ]; do shift; done; target=$2\n'
            f"{build}\n"
        )
        self._program.chmod(0o755)

    @property
    def folders(self) -> list[str]:
        """The folders of the modules that were built."""
        return self._places.read_text().splitlines()

    @property
    def builds(self) -> list[str]:
        return self._builds.read_text().splitlines() if self._builds.exists() else []


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.defpath}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return Go(tmp_path / "bin")


def test_what_is_built_is_found(go: Go) -> None:
    with pytest.raises(ConfigurationError, match=r"no etcd.*`make kube`.*or set KUBEBUILDER_ASSETS"):
        find_assets()
    folder = build()
    assert find_assets(PROGRAMS) == folder == cache_folder()
    assert {path.name for path in folder.iterdir()} == set(PROGRAMS)


def test_every_program_is_linked_with_its_release(go: Go) -> None:
    build(["kube-apiserver"])
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"-X {package}.gitVersion={RELEASE}" in go.builds[0]
        assert f"-X {package}.gitMajor=1" in go.builds[0]


def test_another_release_is_built_beside_it_from_its_own_modules(go: Go) -> None:
    folder = build(release="v1.36.3")
    assert folder == cache_folder("v1.36.3") != cache_folder()
    assert {path.name for path in folder.iterdir()} == {"etcd", "kube-apiserver", "kubectl"}
    assert "component-base/version.gitVersion=v1.36.3" in go.builds[1]
    assert go.folders == ["etcd", "kubernetes-1.36", "kubernetes-1.36"]
    with pytest.raises(
        ConfigurationError, match=r"no such release: v1\.2\.3 \(there are v1\.37\.\d, v1\.36\.3\)"
    ):
        build(release="v1.2.3")
    with pytest.raises(
        ConfigurationError, match=r"no such program: helm \(there are etcd, kube-apiserver, kubectl\)"
    ):
        build(["helm"], release="v1.36.3")


def test_what_is_there_is_not_built_again(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    build(["etcd"])
    build(["etcd", "kwok"])
    build(["etcd", "kwok"])
    assert len(go.builds) == 2
    assert "is complete" in capsys.readouterr().out


def test_a_failed_build_leaves_nothing_and_says_why(go: Go) -> None:
    go.does('echo half > "$target"; echo no such module >&2; exit 1')
    with pytest.raises(BuildFailed, match="go build of etcd failed:\nno such module"):
        build(["etcd"])
    assert list(cache_folder().iterdir()) == []


def test_ctrl_c_ends_the_compiler_and_keeps_what_was_finished(go: Go, tmp_path: Path) -> None:
    slow = tmp_path / "compiling"
    os.mkfifo(slow)
    go.does(
        f'case "$target" in */etcd) {COMPILES};; *) echo half > "$target"; echo $$ > {slow}; exec sleep 60;; esac'
    )
    command = [sys.executable, BUILD, "etcd", "kwok"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as builder:
        compiler = int(slow.read_text())  # returns when the second one is being built
        builder.send_signal(signal.SIGINT)
        said, _ = builder.communicate(timeout=60)
    assert builder.returncode == 1
    assert "interrupted; what was finished stays" in said
    assert "Traceback" not in said
    assert not is_running(compiler)
    assert [path.name for path in cache_folder().iterdir()] == ["etcd"]


@pytest.mark.parametrize("version", ["go1.25.9", "devel"])
def test_an_old_go_is_refused_with_both_ways_out(go: Go, version: str) -> None:
    go.does(COMPILES, version)
    with pytest.raises(
        ConfigurationError, match=r"too old: install Go 1\.26 or newer, or set KUBEBUILDER_ASSETS"
    ):
        build(["etcd"])


def test_a_machine_without_go_learns_both_ways_out(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        ConfigurationError, match=r"needs Go: install Go 1\.26 or newer, or set KUBEBUILDER_ASSETS"
    ):
        build(["etcd"])


def test_an_unknown_program_is_refused(go: Go) -> None:
    with pytest.raises(ConfigurationError, match="no such program: kube-proxy"):
        build(["kube-proxy"])


def test_the_named_folder_goes_before_the_cache(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(["etcd"])
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(ConfigurationError, match="unset the variable"):
        find_assets(["etcd"])
    (tmp_path / "etcd").touch(0o755)
    assert find_assets(["etcd"]) == tmp_path
