"""The reference in the documentation site covers everything public."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from source_tree import ROOT

import kubeshard

sys.path.insert(0, str(ROOT / "tools"))
from site_pages import LISTED, PACKAGES, reference

PAGES = reference()
DESCRIBED = set(re.findall(r"^(?:::: |## `)([\w.]+)", "\n".join(PAGES.values()), re.M))


def test_every_name_of_the_face_is_described() -> None:
    described = DESCRIBED | {f"kubeshard.{name}" for name in DESCRIBED}  # msgspec's names have no path
    modules = {"kubeshard.errors", "kubeshard.until", "kubeshard.when", "kubeshard.__version__"}
    assert {f"kubeshard.{name}" for name in kubeshard.__all__} - modules <= described
    assert {"kubeshard.core.errors", "kubeshard.core.until"} <= DESCRIBED


def test_every_public_package_has_a_page() -> None:
    listed = set(re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs" / "public-interface.md").read_text(), re.M))
    assert {f"kubeshard.{LISTED}", *PACKAGES} <= listed
    assert {each for each in listed if re.fullmatch(r"kubeshard\.\w+", each)} <= {
        f"kubeshard.{LISTED}",
        *PACKAGES,
    }


def test_the_list_of_the_kinds_has_every_name() -> None:
    page = PAGES[f"reference/{LISTED}.md"]
    assert set(import_module(f"kubeshard.{LISTED}").__all__) <= set(re.findall(r"`(\w+)`", page))


def test_every_public_name_of_a_package_is_described_once() -> None:
    """Either on the package's page, or with the top-level names or the errors."""
    missing = []
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            places = {f"{package}.{name}", f"kubeshard.{name}", name}
            if not places & DESCRIBED and not hasattr(kubeshard.errors, name):
                missing.append(f"{package}.{name}")
    assert not missing


def test_every_page_of_the_reference_can_be_found() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert not [page for page in PAGES if page not in navigation]


@pytest.mark.system
@pytest.mark.parametrize(("link", "code"), [("#there", 0), ("#nowhere", 1), ("no-page.md", 1)])
def test_a_link_that_leads_nowhere_fails_the_build(link: str, code: int, tmp_path: Path) -> None:
    """With the options of `make docs`: one that hides warnings would keep them from counting, too."""
    (command,) = re.findall(r"/mkdocs (.*?) &&", (ROOT / "Makefile").read_text())
    validation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["validation"]
    (tmp_path / "mkdocs.yml").write_text(json.dumps({"site_name": "a site", "validation": validation}))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# There\n\n[a link]({link})\n")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command.split()], cwd=tmp_path, capture_output=True
    )
    assert built.returncode == code, built.stderr.decode()
