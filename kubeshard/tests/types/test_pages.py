"""The programs of the documents pass a type checker: every name, attribute and argument exists.

The settings are looser than for `test_types`: tests on pages have no annotations, and use optional values without
checking for None.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "house"))
from pages import all_blocks, blocks_of, programs
from source_tree import ROOT

pytestmark = pytest.mark.system

CONFIGURATION = """
[mypy]
check_untyped_defs = True
strict_optional = False
[mypy-kopf.*,kubernetes.*]
follow_imports = skip
"""

WRONG = """
```python
from kubeshard import Context

async def reconcile(ctx: Context, obj: object) -> None:
    await ctx.no_such_verb(obj)
```
"""
"""A page with a mistake in its sixth line, so that nobody need believe that mistakes are found."""


def test_the_programs_of_the_documents_pass_a_type_checker(tmp_path: Path) -> None:
    configuration = tmp_path / "mypy.ini"
    configuration.write_text(CONFIGURATION)
    read: dict[str, tuple[str, int]] = {}
    for page, blocks in groupby([*all_blocks(), *blocks_of("wrong", WRONG)], key=lambda block: block.page):
        for number, (program, moved) in enumerate(programs(page, blocks)):
            file = f"{re.sub(r'[^a-z]', '_', page.lower())}_{number}.py"
            (tmp_path / file).write_text(program)
            read[file] = page, moved
    assert len(read) > 20
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(configuration),
            *(tmp_path / file for file in read),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    mistakes = []
    for path, line, message in re.findall(r"^(.+?):(\d+): error: (.*)$", ran.stdout, re.M):
        page, moved = read[Path(path).name]
        mistakes.append(f"{page}:{int(line) - moved}: {message}")
    assert mistakes == ['wrong:6: "Context" has no attribute "no_such_verb"  [attr-defined]']
