"""Vault of storage.example.com/v1, as far as it is used here."""

# Written by: kubeshard types vault_crd.yaml

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard import KubeObject, Struct, field
from kubeshard.core import Condition, LabelSelector


class Lock(Struct):
    turns: int | None = None
    x_code: str | None = field(default=None, name="x-code")


class Door(Struct):
    name: str
    locks: tuple[Lock, ...] | None = None


class Shelve(Struct):
    field_: bool | None = None
    str_: str | None = None


class VaultSpec(Struct):
    """What the vault should be like."""

    doors: tuple[Door, ...]
    class_: str | None = None
    """Of which material. One of Iron, Steel."""
    cluster_ips: tuple[str, ...] | None = field(default=None, name="clusterIPs")
    selector: LabelSelector | None = None
    weight: float | None = None
    """In "tons", with a backslash \\ in it and more words than fit into a single line of this module."""
    port: int | str | None = None
    extras: Mapping[str, Any] | None = None
    anything: Any = None
    shelves: Mapping[str, Shelve] | None = None


class VaultStatus(Struct):
    conditions: tuple[Condition, ...] | None = None
    opened_at: str | None = None


class Vault(KubeObject, group="storage.example.com", version="v1", namespaced=False):
    """A vault keeps things."""

    spec: VaultSpec
    status: VaultStatus = field(default_factory=VaultStatus)
