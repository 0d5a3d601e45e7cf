"""The programs of docs/admission-webhooks.md run, and the first one is the example."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kubeshard import Manager
from kubeshard.webhook import Denied

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "admission-webhooks.md").read_text(), re.M | re.S
)
EXAMPLE = (ROOT / "examples" / "no_latest.py").read_text()


def test_a_validator_takes_fifteen_lines_with_its_imports_and_its_manager() -> None:
    assert BLOCKS[0] == EXAMPLE
    assert len([line for line in EXAMPLE.splitlines() if line]) <= 15


def test_the_webhooks_of_the_document_are_served_and_registered() -> None:
    module = ModuleType("admission_webhooks")
    sys.modules[module.__name__] = module  # annotations are resolved in it
    for block in BLOCKS:
        exec(block, vars(module))
    names = vars(module)
    with pytest.raises(Denied):
        names["no_latest"](names["App"](image="a:latest"))
    assert [manifest["kind"] for manifest in names["webhooks"].manifests()] == [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
    ]
    assert names["upgraded"](names["OldBackup"]()).spec.keep == 0
    Manager(servers=[names["webhooks"], names["server"]()])
