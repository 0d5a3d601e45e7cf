"""Every test is in one tier, and `make test` starts only programs of the main job (docs/testing.md)."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

import kubeshard
import kubeshard_apiserver

MARKERS = ("main_job", "system", "kube", "interop", "go")
TIERS = {
    name: rule
    for name, rule in re.findall(r"^([A-Z]+) += (.*)$", (ROOT / "Makefile").read_text(), re.M)
    if name in ("QUICK", "SYSTEM", "OUTSIDE")
}


def test_every_test_is_in_one_tier_whatever_its_markers() -> None:
    for carried in itertools.product((False, True), repeat=len(MARKERS)):
        values = dict(zip(MARKERS, carried, strict=True))
        selected = [name for name, rule in TIERS.items() if eval(rule, {}, values)]
        assert len(selected) == 1, values


def test_what_make_test_does_not_read_has_only_tests_of_other_tiers() -> None:
    (left_out,) = re.findall(
        r"^SLOW += \$\(addprefix --ignore=,(.*)\)$", (ROOT / "Makefile").read_text(), re.M
    )
    (marked,) = re.findall(r"^SYSTEM = \(\n(.*?)^\)", (ROOT / "conftest.py").read_text(), re.M | re.S)
    for folder in left_out.split():
        assert f'"{folder}",' in marked
        assert not any("main_job" in path.read_text() for path in (ROOT / folder).glob("*.py"))


def test_ci_runs_every_tier_once() -> None:
    targets = re.findall(r"^step .* tests (test.*)$", (ROOT / ".ci" / "run").read_text(), re.M)
    # The tier `kube` in two steps, of one folder each, because only the tests of one can run beside each other.
    kube = ["test-kube ARGS=tests", "test-kube-apiserver"]
    assert sorted(targets) == ["test", *kube, "test-pythons", "test-system"]
    assert 'testpaths = ["tests", "apiserver/tests"]' in (ROOT / "pyproject.toml").read_text()


def test_a_test_without_a_marker_cannot_start_a_program() -> None:
    for start in (lambda: subprocess.run([sys.executable, "-V"]), lambda: os.system("true")):
        with pytest.raises(AssertionError, match="is marked `system`"):
            start()


@pytest.mark.system
def test_a_program_that_a_test_starts_runs_the_code_that_the_tests_run(tmp_path: Path) -> None:
    program = "import kubeshard, kubeshard_apiserver as server; print(kubeshard.__file__, server.__file__)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.split() == [kubeshard.__file__, kubeshard_apiserver.__file__]
