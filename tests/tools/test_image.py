"""What `make image` puts into the image, and its messages if it cannot."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from image import content, rootfs
from image.layout import write_layer
from kubeshard.manifests import workload
from kubeshard.manifests.pod_values import PodSecurity
from make_image import missing

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text()
EPOCH = 1_700_000_000


def told(instruction: str) -> str:
    """Returns what the last stage of the Containerfile says."""
    last = CONTAINERFILE[CONTAINERFILE.rindex("FROM ") :]
    (found,) = re.findall(rf"^{instruction} (.+)$", last, re.M)
    return str(found)


def test_the_containerfile_starts_the_same_program_as_the_same_user() -> None:
    assert tuple(json.loads(told("ENTRYPOINT"))) == content.ENTRY_POINT
    assert tuple(json.loads(told("CMD"))) == content.ARGUMENTS
    assert told("USER") == f"{content.USER}:{content.USER}"
    assert dict(pair.split("=") for pair in told("ENV").split()) == dict(content.ENVIRONMENT)


def test_rendered_pods_run_as_the_images_user_and_start_its_program() -> None:
    assert PodSecurity().run_as_user == PodSecurity().run_as_group == content.USER
    (program,) = content.ENTRY_POINT
    folder, _, name = program.rpartition("/")
    assert name == workload.PROGRAM
    assert folder in content.ENVIRONMENT["PATH"].split(":")


def test_the_containerfile_has_the_files_that_make_image_makes_and_no_others() -> None:
    last = CONTAINERFILE[CONTAINERFILE.rindex("FROM ") :]
    assert last.startswith("FROM scratch\n")
    assert re.findall(r"^(?:COPY|ADD|RUN) .*$", last, re.M) == ["COPY --from=build /rootfs/ /"]
    assert "tools/make_image.py --rootfs /rootfs" in CONTAINERFILE
    assert f"debian:{content.SUITE}-slim" in CONTAINERFILE


def test_the_image_has_the_extra_speed_and_no_test_server() -> None:
    locked = set(re.findall(r"^([\w.-]+)==", content.LOCK.read_text(), re.M))
    assert {"uvloop", "httptools", "pycurl"} <= locked
    assert not {"cel-expr-python", "rich", "pytest"} & locked


def test_neither_programs_nor_caches_of_debian_are_kept() -> None:
    kept = ("usr/bin/python3.11", "usr/lib/python3.11/ssl.py", "usr/lib/x86_64-linux-gnu/libssl.so.3")
    gone = (
        "bin/sh",
        "bin/su",
        "usr/bin/perl",
        "usr/bin/apt",
        "usr/lib/python3.11/__pycache__/ssl.cpython-311.pyc",
    )
    assert all(map(content.is_kept, kept))
    assert not any(
        map(content.is_kept, (*gone, "etc/apt/sources.list", "etc/shadow", "usr/share/doc/python3/README"))
    )


def test_a_layer_is_the_same_bytes_whatever_the_files_times_owners_and_modes(tmp_path: Path) -> None:
    layers = []
    for number, mode in enumerate((0o4755, 0o700)):
        root = tmp_path / str(number)
        (root / "bin").mkdir(parents=True)
        (root / "bin" / "program").write_text("#!")
        (root / "bin" / "program").chmod(mode)
        (root / "link").symlink_to("bin/program")
        os.utime(root / "bin" / "program", (EPOCH + 100 * (number + 1),) * 2)
        layer = tmp_path / f"{number}.tar"
        write_layer(root, layer, EPOCH)
        layers.append(layer.read_bytes())
    assert layers[0] == layers[1]
    with tarfile.open(fileobj=io.BytesIO(layers[0])) as archive:
        entries = archive.getmembers()
    assert [(it.name, it.uid, it.gid) for it in entries] == [
        ("bin", 0, 0),
        ("bin/program", 0, 0),
        ("link", 0, 0),
    ]
    assert all(it.mtime <= EPOCH for it in entries)
    assert entries[1].mode == 0o755  # no setuid, and readable by everyone


def test_wheels_are_those_that_run_on_the_images_c_library() -> None:
    tags = rootfs.platforms("x86_64")
    assert tags[0] == "manylinux_2_36_x86_64"
    assert "manylinux2014_x86_64" in tags
    assert not [tag for tag in tags if "musl" in tag]


def test_no_list_of_files_depends_on_where_the_installing_python_was(tmp_path: Path) -> None:
    record = tmp_path / "RECORD"
    record.write_text("../../bin/program,sha256=here,9\nprogram/bin/it.py,sha256=there,9\n")
    rootfs.forget_commands(record)
    assert record.read_text() == "program/bin/it.py,sha256=there,9\n"


def test_what_is_not_installed_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert missing("mmdebstrap", "umoci").endswith("apt-get install mmdebstrap umoci")
    assert missing("nsenter", "unshare").endswith("apt-get install util-linux")


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "run it as root" in missing()


@pytest.mark.system
@pytest.mark.parametrize("program", ["make_image.py", "try_image.py"])
def test_a_machine_that_cannot_make_or_try_the_image_is_told_in_one_line(
    program: str, tmp_path: Path
) -> None:
    command = [sys.executable, str(ROOT / "tools" / program)]
    done = subprocess.run(command, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"cannot (make|try) the image: .*apt-get install .*\n", done.stderr)


@pytest.mark.system
def test_nothing_is_mounted_outside_of_namespaces_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("{}")
    command = [sys.executable, str(ROOT / "tools" / "image" / "confined.py"), str(tmp_path / "settings")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "started by unshare" in done.stderr) == (1, True)
