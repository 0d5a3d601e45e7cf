"""The programs of docs/admission-webhooks.md run, and the first one equals the example."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kubeshard import Manager
from kubeshard.webhook import Denied

ROOT = Path(__file__).parents[3]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "admission-webhooks.md").read_text(), re.M | re.S
)
EXAMPLE = (ROOT / "examples" / "no_latest.py").read_text()


def test_a_validator_takes_fifteen_lines_with_its_imports_and_its_manager() -> None:
    assert BLOCKS[0] == EXAMPLE
    assert len([line for line in EXAMPLE.splitlines() if line]) <= 15


@pytest.fixture
def names() -> dict[str, Any]:
    """Returns the names that the document's programs define."""
    module = ModuleType("admission_webhooks")
    sys.modules[module.__name__] = module  # annotations are resolved in it
    for block in BLOCKS:
        exec(block, vars(module))
    return vars(module)


def test_the_test_of_the_document_passes(
    names: dict[str, Any], kube_api: Any, kube_operator: Any, kube_namespace: str
) -> None:
    names["test_an_image_without_a_version_is_refused"](kube_api, kube_operator, kube_namespace)


def test_the_webhooks_of_the_document_are_served_and_registered(names: dict[str, Any]) -> None:
    with pytest.raises(Denied):
        names["no_latest"](names["App"](image="a:latest"))
    assert [manifest["kind"] for manifest in names["webhooks"].manifests()] == [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
    ]
    assert names["upgraded"](names["OldBackup"]()).spec.keep == 0
    Manager(servers=[names["webhooks"], names["server"]()])
