"""The how-to pages: the examples of each are a test module that passes, as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))
CONFIGURATION = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


def test_there_is_a_test_on_every_page() -> None:
    assert PAGES
    assert not [page.name for page in PAGES if "\nasync def test_" not in page.read_text()]


def test_the_examples_of_all_pages_pass(tmp_path: Path) -> None:
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
        (tmp_path / f"test_{page.stem.replace('-', '_')}.py").write_text("\n\n".join(blocks))
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
    assert f"{len(PAGES)} passed" in done.stdout
