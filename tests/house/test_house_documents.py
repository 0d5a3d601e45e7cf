"""Everything that the documents refer to exists, and nothing names the machine that it was written on."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from source_tree import DISTRIBUTIONS, ROOT, name, texts, tracked

DOCUMENTS = [path for path in tracked() if path.suffix == ".md"]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.M | re.S)
_HOME = re.compile(r"(?<![\w.~$}])/(?:root|home/[a-z]\w*|Users/\w+)/")
_URL_HOST = re.compile(r"https?://([\w.-]+)")
_REGISTRY = re.compile(
    r"(^|\.)(pypi|python"
    r"hosted|npmjs|crates|conda|anaconda|artifactory|nexus|devpi|proxy\.golang|sum\.golang)\b"
)


def in_none(check: Callable[[Path, str], Iterable[str]]) -> None:
    """Fails with what the check finds in each document, given its path and text."""
    found = {name(path): list(check(path, path.read_text())) for path in DOCUMENTS}
    assert not {document: what for document, what in found.items() if what}


def test_links_lead_somewhere() -> None:
    def broken(document: Path, text: str) -> Iterator[str]:
        for target in _LINK.findall(_FENCE.sub("", text)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = document.parent / path if path else document
            leads_here = not anchor and file.resolve() == document.resolve()
            if leads_here or not file.exists() or (anchor and anchor not in _anchors(file)):
                yield target

    in_none(broken)


@cache
def _anchors(file: Path) -> set[str]:
    """The anchors that GitHub derives from headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", file.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_make_command_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    in_none(lambda _, text: {*re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)} - targets)


def test_every_file_that_is_named_exists() -> None:
    named = re.compile(
        r"`((?:kubeshard|apiserver|lab|tests|tools|docs|examples|benchmarks|models|deploy)/[\w./-]+)`"
    )
    in_none(lambda _, text: [path for path in named.findall(text) if not (ROOT / path).exists()])


def test_the_first_operator_of_the_readme_is_the_one_that_is_tested() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert (ROOT / "examples" / "first_operator.py").read_text() in blocks


def test_programs_in_documents_import_what_is_public() -> None:
    """As documented in docs/public-interface.md."""
    page = (ROOT / "docs" / "public-interface.md").read_text()
    public = {"kubeshard", *re.findall(r"^\| `(kubeshard\w*(?:\.\w+)*)` \|", page, re.M)}

    def private(_: Path, text: str) -> Iterator[str]:
        for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
            for node in ast.walk(ast.parse(block)):
                module = (isinstance(node, ast.ImportFrom) and node.module) or ""
                for alias in node.names if module.startswith("kubeshard") else ():
                    if module not in public or alias.name not in import_module(module).__all__:
                        yield f"{module}.{alias.name}"

    in_none(private)


def test_the_files_of_the_readme_are_there() -> None:
    named = re.findall(r"\bexamples/\w+\.(?:py|yaml)\b", (ROOT / "README.md").read_text())
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_readme_installs_before_it_runs_what_is_installed() -> None:
    """`make demo` installs the commands."""
    commands = "\n".join(_FENCE.findall((ROOT / "README.md").read_text()))
    assert commands.index("make demo") < commands.index(".venv/bin/kubeshard")
    assert re.search(r"^demo: install ", (ROOT / "Makefile").read_text(), re.M)


def test_the_readme_can_be_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_every_page_is_in_the_list_of_all_pages() -> None:
    docs = ROOT / "docs"
    pages = {path for path in DOCUMENTS if path.is_relative_to(docs)} - {docs / "README.md"}
    listed = _LINK.findall((docs / "README.md").read_text())
    assert pages == {docs / path for path in listed if not path.startswith("..")}
    assert len(pages) < 50, "merge two of them, so that a reader still finds one"


def test_nothing_names_the_machine_it_was_written_on() -> None:
    here = {str(ROOT), str(Path.home())} - {"/"}
    found = [
        f"{path}: {line.strip()}"
        for path, text in texts()
        for line in text.splitlines()
        if _HOME.search(line) or any(folder + "/" in line for folder in here)
    ]
    assert not found


def test_nothing_names_a_package_registry() -> None:
    """The source of packages is configured on the machine: in pip, uv and Go."""
    found = [
        f"{path}: {host}"
        for path, text in texts()
        for host in _URL_HOST.findall(text)
        if _REGISTRY.search(host)
    ]
    assert not found


def test_nothing_says_to_install_from_an_index_what_is_not_released() -> None:
    """Nobody has registered our names there: anyone who did would get installed. Remove this with the release."""
    command = re.compile(
        r"(?:\bpip|\buv|\bpipx)[^\n`]*\b(?:install|add)\b[^\n`#]*(?<![/\w.-])kubeshard(?![\w/]|\.\w)"
    )
    found = [
        f"{path}: {line.strip()}"
        for path, text in texts()
        if path.endswith((".py", ".md", ".template", ".toml", ".yaml", "Makefile", "Containerfile"))
        for line in text.splitlines()
        if command.search(line)
    ]
    assert not found


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-run.txt", "requirements-image.txt"])
def test_locked_dependencies_carry_hashes_and_no_address(file: str) -> None:
    lock = (ROOT / file).read_text()
    assert "://" not in lock
    assert not re.search(r"^--(index-url|extra-index-url|find-links)", lock, re.M)
    for requirement in re.split(r"\n(?=\w)", lock.strip()):
        assert "--hash=sha256:" in requirement, requirement


def test_programs_run_on_a_part_of_what_is_tested() -> None:
    image, run, tested = (
        set(re.findall(r"^[\w.-]+==[\w.]+|sha256:\w+", (ROOT / file).read_text(), re.M))
        for file in ("requirements-image.txt", "requirements-run.txt", "requirements.txt")
    )
    assert image < run < tested


def test_the_lock_has_every_declared_dependency() -> None:
    declared = []
    for distribution in DISTRIBUTIONS:
        project = tomllib.loads((distribution / "pyproject.toml").read_text())
        declared += [
            *project["project"]["dependencies"],
            *(
                item
                for group in project["project"].get("optional-dependencies", {}).values()
                for item in group
            ),
        ]
    declared += tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    names = {re.split(r"[^\w.-]", item)[0].lower().replace("_", "-") for item in declared}
    names -= {"kubeshard", "kubeshard-apiserver", "kubeshard-lab"}
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text().lower(), re.M))
    assert names <= locked
