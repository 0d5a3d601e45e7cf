"""The page about the embedded server says what is so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "apiserver.md").read_text()


EXAMPLES = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "async def test_" in block]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.search(r"def (\w+)", text)[1])
async def test_the_examples_for_unit_tests_work(example):
    names = {}
    exec(compile(example, "docs/apiserver.md", "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    await test()


def test_every_area_of_the_suite_is_in_the_table():
    areas = {
        path.stem.removeprefix("test_conformance_").replace("_", " ")
        for path in (ROOT / "apiserver" / "tests" / "conformance").glob("test_conformance_*.py")
    }
    assert areas <= set(re.findall(r"^\| ([a-z ]+) \| \d+ \|$", PAGE, re.M))


def test_every_module_that_the_page_names_exists():
    package = ROOT / "apiserver" / "src" / "kubeshard_apiserver"
    rooms = PAGE.partition("## Rooms")[2]
    for name in re.findall(r"^\| (`.*?) \|", rooms, re.M):
        for module in re.findall(r"`(\w+)`", name):
            assert (package / module).exists() or (package / f"{module}.py").exists(), module
