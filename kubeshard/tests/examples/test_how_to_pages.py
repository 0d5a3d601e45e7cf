"""The how-to pages, and those for users of other frameworks: the examples of each chapter of a how-to page, and of each
other page, form a module that can be imported unchanged, and whose tests pass.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted([*DOCS.glob("how-to/*.md"), *DOCS.glob("coming-from/*.md"), DOCS / "project" / "features.md"])
CONFIGURATION = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


def test_the_examples_of_all_pages_pass(tmp_path: Path) -> None:
    tests = 0
    for page in PAGES:
        text = page.read_text()
        chapters = re.split(r"^## ", text, flags=re.M) if page.parent.name == "how-to" else [text]
        for number, chapter in enumerate(chapters):
            blocks = re.findall(r"^```python\n(.*?)^```", chapter, re.M | re.S)
            tests += len(re.findall(r"^(?:async )?def test_", "".join(blocks), re.M))
            module = tmp_path / f"test_{page.stem.replace('-', '_')}_{number}.py"
            module.write_text("\n\n".join(blocks))
    (tmp_path / "pytest.ini").write_text(CONFIGURATION)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert tests
    assert f"{tests} passed" in done.stdout


def test_what_is_shown_of_kopf_is_kopf() -> None:
    """Its decorators accept the code; nothing is run."""
    import kopf  # a second of every worker that collects this file

    (block,) = re.findall(r"^```py\n(.*?)^```", (DOCS / "coming-from" / "kopf.md").read_text(), re.M | re.S)
    ours, before = kopf.OperatorRegistry(), kopf.get_default_registry()
    kopf.set_default_registry(ours)
    try:
        exec(compile(block, "kopf.md", "exec"), {"__name__": "kopf_page"})
    finally:
        kopf.set_default_registry(before)
    assert len(ours._changing.get_all_handlers()) == 3
    assert len(ours._spawning.get_all_handlers()) == 1
