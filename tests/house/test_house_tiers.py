"""Every test is in one tier, and `make test` starts only programs of the main job (docs/testing.md)."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import DISTRIBUTIONS, ROOT, name, sources

import kubeshard
import kubeshard_apiserver

MARKERS = ("main_job", "long", "system", "nightly", "kube", "interop", "go")
MAKEFILE = (ROOT / "Makefile").read_text()
TIERS = {
    tier: rule
    for tier, rule in re.findall(r"^([A-Z]+) += (.*)$", MAKEFILE, re.M)
    if tier in ("QUICK", "LONG", "SYSTEM", "OUTSIDE", "NIGHTLY", "LIVE")
}


def test_every_test_is_in_one_tier_whatever_its_markers() -> None:
    for carried in itertools.product((False, True), repeat=len(MARKERS)):
        values = dict(zip(MARKERS, carried, strict=True))
        selected = [name for name, rule in TIERS.items() if eval(rule, {}, values)]
        assert len(selected) == 1, values


def test_what_make_test_does_not_read_has_only_tests_of_other_tiers() -> None:
    (left_out,) = re.findall(r"^SLOW += \$\(addprefix --ignore=,(.*)\)$", MAKEFILE, re.M)
    (marked,) = re.findall(r"^SYSTEM = \(\n(.*?)^\)", (ROOT / "conftest.py").read_text(), re.M | re.S)
    house, *folders = left_out.split()
    assert house == "tests/house"
    assert f'-m "$(QUICK)" {house}\n' in MAKEFILE  # in `make lint`
    for folder in folders:
        assert f'"{folder}",' in marked
        assert not any("main_job" in path.read_text() for path in (ROOT / folder).glob("*.py"))


def test_modules_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by name: of two with one name it runs neither."""
    places: dict[str, list[str]] = {}
    for path in sources(ROOT / "tests", *(folder / "tests" for folder in DISTRIBUTIONS)):
        places.setdefault(path.name, []).append(name(path))
    del places["conftest.py"]
    assert not [same for same in places.values() if len(same) > 1]


def test_a_night_runs_every_tier_and_a_gate_those_that_are_not_left_to_it() -> None:
    targets = dict(re.findall(r'^(test[a-z-]*):.*\n\t\$\(BIN\)/pytest -m "\$\((\w+)\)"', MAKEFILE, re.M))

    def tiers(file: str) -> set[str]:
        steps = (ROOT / ".ci" / file).read_text()
        return {targets[name] for name in re.findall(r"tests (test[a-z-]*)", steps) if name in targets}

    assert tiers("nightly") == TIERS.keys()
    assert tiers("run") == TIERS.keys() - {"NIGHTLY", "LIVE"}
    assert (
        'testpaths = ["tests", "kubeshard/tests", "apiserver/tests", "lab/tests"]'
        in (ROOT / "pyproject.toml").read_text()
    )


STEP = """set -uo pipefail
BUDGET={budget}
. {steps}
step one {one}
step two tests {two}
finish() {{ printf "%s\\n" "${{summary[@]}}"; exit "$failed"; }}
finish
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("budget", "one", "two", "said"),
    [
        (9, "true", "two", ["ok", "ok"]),
        (9, "false", "two", ["FAILED", "ok"]),
        (9, "true", "three 'PARTS=a b'", ["ok", "ok"]),
        (9, "true", "three PARTS=a", ["ok", "FAILED"]),
        (1, "within sleep 9", "two", ["NOT FINISHED", "NOT RUN"]),
        (0, "true", "two", ["NOT RUN", "NOT RUN"]),
    ],
)
def test_a_run_that_did_not_finish_is_not_green_and_a_retry_is_of_the_same_tests(
    budget: int, one: str, two: str, said: list[str], tmp_path: Path
) -> None:
    """`three` fails at first, and then unless it gets the same PARTS."""
    (tmp_path / "Makefile").write_text(
        'two:\n\t@true\nthree:\n\t@test -n "$(ARGS)" && test "$(PARTS)" = "a b"\n'
    )
    script = STEP.format(budget=budget, one=one, two=two, steps=ROOT / ".ci" / "steps")
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert [line[:12].strip() for line in ran.stdout.splitlines()[-2:]] == said
    assert ran.returncode == (said != ["ok", "ok"])


def test_a_test_without_a_marker_cannot_start_a_program() -> None:
    for start in (lambda: subprocess.run([sys.executable, "-V"]), lambda: os.system("true")):
        with pytest.raises(AssertionError, match="is marked `system`"):
            start()


@pytest.mark.system
def test_a_program_that_a_test_starts_runs_the_code_that_the_tests_run(tmp_path: Path) -> None:
    program = "import kubeshard, kubeshard_apiserver as server; print(kubeshard.__file__, server.__file__)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.split() == [kubeshard.__file__, kubeshard_apiserver.__file__]
