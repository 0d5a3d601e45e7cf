"""The reference of the documentation site has everything that is public."""

from __future__ import annotations

import re
import sys
from importlib import import_module

from source_tree import ROOT

import kubeshard

sys.path.insert(0, str(ROOT / "tools"))
from site_pages import PACKAGES, reference

PAGES = reference()
DESCRIBED = set(re.findall(r"^(?:::: |## `)([\w.]+)", "\n".join(PAGES.values()), re.M))


def test_every_name_of_the_face_is_described() -> None:
    described = DESCRIBED | {
        f"kubeshard.{name}" for name in DESCRIBED
    }  # those of msgspec stand without a path
    modules = {"kubeshard.errors", "kubeshard.until", "kubeshard.__version__"}
    assert {f"kubeshard.{name}" for name in kubeshard.__all__} - modules <= described
    assert {"kubeshard.core.errors", "kubeshard.core.until"} <= DESCRIBED


def test_every_public_package_has_a_page() -> None:
    listed = re.findall(
        r"^\| `kubeshard\.(\w+)` \|", (ROOT / "docs" / "public-interface.md").read_text(), re.M
    )
    assert sorted(listed) == sorted(PACKAGES)


def test_every_public_name_of_a_package_is_described_once() -> None:
    """On the package's page, or with the face or the errors."""
    missing = []
    for package in PACKAGES:
        module = import_module(f"kubeshard.{package}")
        for name in module.__all__:
            places = {f"kubeshard.{package}.{name}", f"kubeshard.{name}", name}
            if not places & DESCRIBED and not hasattr(kubeshard.errors, name):
                missing.append(f"{package}.{name}")
    assert not missing


def test_every_page_of_the_reference_can_be_found() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert not [page for page in PAGES if page not in navigation]
