"""The page about the embedded server is accurate."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "apiserver.md").read_text()


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
