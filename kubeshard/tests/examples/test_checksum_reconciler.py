"""The checksum controller (D5 in docs/defects.md)."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec
from little_server import LittleServer, Run

from kubeshard.cache.deltas import Deleted, Updated
from kubeshard.core import ConfigMap, ObjectMeta, Secret
from kubeshard_lab.examples.checksum.operator import SecretChecksums, checksums, secret_checksums

NAMESPACE = "default"


def secret(labels: dict[str, str] | None = None, name: str = "a", **data: bytes) -> Secret:
    return Secret(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid="1", labels=labels),
        data={key: base64.b64encode(value).decode() for key, value in data.items()},
    )


async def reconcile(server: LittleServer, obj: Secret) -> Any:
    await SecretChecksums().reconcile(Run(server, NAMESPACE).context, obj)
    return server.find(ConfigMap, f"checksums-{obj.metadata.name}", NAMESPACE)


async def test_each_value_has_its_checksum_and_labels_are_copied() -> None:
    found = await reconcile(LittleServer(), secret({"shard": "x"}, key=b"value", binary=b"\xff\x00"))
    assert found.data == {
        "key": hashlib.sha256(b"value").hexdigest(),
        "binary": hashlib.sha256(b"\xff\x00").hexdigest(),
    }
    assert found.metadata.labels == {"shard": "x", "secret": "a"}
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.name, owner.controller) == ("Secret", "a", True)


async def test_changed_data_changes_the_config_map_and_nothing_else_is_sent() -> None:
    server = LittleServer()
    await reconcile(server, secret(key=b"1", gone=b"x"))
    found = await reconcile(server, secret(key=b"2"))
    assert found.data == {"key": hashlib.sha256(b"2").hexdigest()}
    server.writes.clear()
    await reconcile(server, secret(key=b"2"))
    assert server.writes == []


async def test_a_secret_without_labels_or_data_is_fine() -> None:
    found = await reconcile(LittleServer(), secret(None))
    assert found.metadata.labels == {"secret": "a"}
    assert not found.data


def test_a_name_that_is_no_label_value_is_not_made_one() -> None:
    assert checksums(secret(name="a" * 64)).metadata.labels == {}


async def test_a_secret_that_is_being_deleted_gets_nothing() -> None:
    obj = secret(key=b"1")
    meta = msgspec.structs.replace(obj.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    server = LittleServer()
    await reconcile(server, msgspec.structs.replace(obj, metadata=meta))
    assert server.writes == []


def test_it_reacts_to_changed_data_and_to_a_config_map_that_is_gone() -> None:
    controller = secret_checksums()
    assert (controller.name, controller.workers) == ("secret-checksums", 5)
    when = controller.primary_watch.when
    assert when(Updated(secret(key=b"1"), secret(key=b"2")))
    assert not when(Updated(secret(key=b"1"), secret(key=b"1")))
    (owned,) = controller.owned_watches
    assert owned.when(Deleted(ConfigMap(metadata=ObjectMeta(name="checksums-a")), final=True))
