"""The archives of `make dist` are reproducible, and their descriptions are right."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from distribution.building import ROOT, SOURCES, CannotBuild, build, digest, hatch, write_digests
from distribution.changes import NoEntry, entry
from distribution.licences import NoLicence, licences

EPOCH = 1_700_000_000


def installed(site_packages: Path, name: str, *fields: str, **texts: str) -> None:
    """Unpacks a distribution as an installer would."""
    folder = site_packages / f"{name}-1.0.dist-info"
    (folder / "licenses").mkdir(parents=True)
    files = [f"License-File: {file}" for file in texts]
    (folder / "METADATA").write_text(
        "\n".join(("Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *fields, *files, ""))
    )
    for file, text in texts.items():
        (folder / "licenses" / file).write_text(text)


@pytest.mark.system
@pytest.mark.parametrize(
    "source", SOURCES, ids=lambda source: "apiserver" if source == SOURCES[1] else "kubeshard"
)
def test_a_commit_makes_the_same_archives_elsewhere_later_and_under_another_umask(
    source: Path, tmp_path: Path
) -> None:
    once = build(source, tmp_path / "once", EPOCH)
    skipped = shutil.ignore_patterns(
        ".git", ".venv*", ".*cache", ".hypothesis", "build", "dist", "__pycache__"
    )
    copy = tmp_path / "elsewhere"
    shutil.copytree(ROOT, copy, ignore=skipped, copy_function=shutil.copyfile)  # new times, new modes
    before = os.umask(0o077)
    try:
        again = build(copy / source.relative_to(ROOT), tmp_path / "again", EPOCH)
    finally:
        os.umask(before)
    assert digest(again.wheel) == digest(once.wheel)
    assert digest(again.source) == digest(once.source)


@pytest.mark.system
def test_a_source_distribution_that_lacks_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thing").mkdir()
    for file in ("__init__.py", "more.py"):
        (tmp_path / "thing" / file).write_text(f"'''{file}'''")
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "thing"\nversion = "1.0"\n'
        '[tool.hatch.build.targets.sdist]\nexclude = ["more.py"]\n'
    )
    with pytest.raises(CannotBuild, match=r"thing-1.0.tar.gz makes another thing"):
        build(tmp_path, tmp_path / "dist", EPOCH)


@pytest.mark.system
def test_what_a_build_complains_of_is_said(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "thing"\n')
    with pytest.raises(CannotBuild, match=r"`project\.version`|version"):
        hatch(tmp_path, tmp_path / "dist", EPOCH, "wheel")


@pytest.mark.system
def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    write_digests(tmp_path)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / "two").write_text("3")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode != 0


def test_licences_are_those_that_what_is_installed_states(tmp_path: Path) -> None:
    installed(tmp_path, "ours", "License-Expression: Apache-2.0", LICENSE="our words")
    installed(
        tmp_path, "New", "License-Expression: MIT", "License: something else", LICENSE="the MIT licence"
    )
    installed(tmp_path, "old", "License: BSD-3-Clause")
    installed(tmp_path, "oldest", "Classifier: License :: OSI Approved :: Python Software Foundation License")
    installed(
        tmp_path, "verbose", "License: first line", "        second line", COPYING="all of it", NOTICE="more"
    )
    page = licences(tmp_path, ours=["ours"])
    overview, _, texts = page.partition("\n\n")
    assert overview.splitlines() == [
        "New 1.0: MIT",
        "old 1.0: BSD-3-Clause",
        "oldest 1.0: Python Software Foundation License",
        "verbose 1.0: see below",
    ]
    assert all(words in texts for words in ("the MIT licence", "all of it", "more"))
    assert "our words" not in page


def test_a_dependency_without_a_licence_stops_the_release(tmp_path: Path) -> None:
    installed(tmp_path, "anonymous", "Classifier: License :: OSI Approved")
    with pytest.raises(NoLicence, match=r"anonymous 1\.0"):
        licences(tmp_path, ours=[])


CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n* new\n\n## [0.2.0]\n\n## [0.1.0] - 2026-01-01\n\n* first\n"


@pytest.mark.parametrize(
    ("version", "found"),
    [("0.3.0.dev0", "## [Unreleased]\n\n* new\n"), ("0.1.0", "## [0.1.0] - 2026-01-01\n\n* first\n")],
)
def test_what_is_new_in_a_version_is_its_section_of_the_changelog(version: str, found: str) -> None:
    assert entry(CHANGELOG, version) == found


@pytest.mark.parametrize("version", ["0.2.0", "0.3.0"])
def test_a_version_of_which_the_changelog_says_nothing_is_not_released(version: str) -> None:
    with pytest.raises(NoEntry, match=version):
        entry(CHANGELOG, version)
