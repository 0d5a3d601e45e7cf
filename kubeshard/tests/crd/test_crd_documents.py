"""The programs of docs/custom-resources.md run in order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kubeshard.client.installing import install
from kubeshard.webhook import Denied
from kubeshard_apiserver.testing import MemoryApi

DOCUMENT = Path(__file__).parents[3] / "docs" / "custom-resources.md"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    module = ModuleType("custom_resources")
    sys.modules[module.__name__] = module  # annotations are resolved in it
    for block in re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S):
        exec(block, vars(module))
    return vars(module)


def test_the_definition_of_the_document_is_made(names: dict[str, Any]) -> None:
    version = names["manifest"]["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["schedule", "volume"]
    assert spec["properties"]["targets"]["x-kubernetes-list-map-keys"] == ["name"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.keep"


def test_both_versions_of_the_document_are_served_and_one_is_stored(names: dict[str, Any]) -> None:
    versions = names["vaults"]["spec"]["versions"]
    assert [(version["name"], version["storage"]) for version in versions] == [
        ("v1alpha1", False),
        ("v1", True),
    ]


def test_the_versions_of_the_document_are_converted(names: dict[str, Any]) -> None:
    old = names["OldVault"](spec=names["OldVaultSpec"](every="5 4 * * *"))
    new = names["upgraded"](old)
    assert new.spec.schedule == "5 4 * * *"
    assert names["downgraded"](new) == old
    with pytest.raises(Denied, match="has no"):
        names["downgraded"](names["Vault"](spec=names["VaultSpec"](schedule="5 4 ? * *")))


async def test_a_definition_with_a_deprecated_version_is_installed_without_a_warning(
    names: dict[str, Any], kube_memory: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    async with kube_memory.client() as client:
        assert [each["kind"] async for each in install(client, [names["vaults"]])] == [
            "CustomResourceDefinition"
        ]
        assert not [each for each in caplog.records if each.levelname == "WARNING"]
        await client.raw("GET", "/apis/example.com/v1alpha1/vaults")
        assert [each for each in caplog.records if each.levelname == "WARNING"], "the server would warn"
