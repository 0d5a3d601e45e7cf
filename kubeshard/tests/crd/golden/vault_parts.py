"""Vault of storage.example.com/v1, as far as it is used here."""

# Written by: kubeshard types vault_crd.yaml

from __future__ import annotations

from collections.abc import Mapping

from kubeshard import KubeObject, Struct, field


class Door(Struct):
    name: str


class Shelve(Struct):
    field_: bool | None = None
    str_: str | None = None


class VaultSpec(Struct):
    """What the vault should be like."""

    doors: tuple[Door, ...]
    shelves: Mapping[str, Shelve] | None = None


class VaultStatus(Struct):
    opened_at: str | None = None


class Vault(KubeObject, group="storage.example.com", version="v1", namespaced=False):
    """A vault keeps things."""

    spec: VaultSpec
    status: VaultStatus = field(default_factory=VaultStatus)
