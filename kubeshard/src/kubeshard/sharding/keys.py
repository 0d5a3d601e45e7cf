"""Hash keys: the parts of an object that determine its shard.

`<group>/<Kind>/<namespace>/<name>` of the object itself for a main resource, of its owner for a controlled one, so
that both are assigned to the same shard. Empty parts stay empty; the version is never included. The messages are part
of the wire contract: the webhook returns them. Which object is the owner says `ownership`.
"""

from __future__ import annotations

from functools import lru_cache

from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key, ObjectMeta, OwnerReference


class KeyRefused(ValueError):
    """The object cannot be keyed. The message is the protocol's."""


class GeneratedName(KeyRefused):
    """A main object that is created with generateName: it has a key only after the server has named it."""


def main_key(api_version: str, kind: str, meta: ObjectMeta, namespace: str = "") -> str:
    """The key of an object of a main resource.

    `namespace` is used if the metadata has none (API servers before 1.22 during a create). Raises
    KeyRefused without a kind or name, GeneratedName if the name is not generated yet.
    """
    if not api_version and not kind:
        raise KeyRefused("apiVersion and kind must not be empty")
    if not meta.name:
        if meta.generate_name:
            raise GeneratedName(
                "generateName is not supported on ring resources that are not controlled by another resource"
            )
        raise KeyRefused("name must not be empty")
    try:
        group = _group(api_version)
    except ValueError:
        group = ""
    return f"{group}/{kind}/{meta.namespace or namespace}/{meta.name}"


def controlled_key(reference: OwnerReference, namespace: str) -> str:
    """The key of an object's controller, which is in this namespace, "" for a cluster-scoped one.

    Raises KeyRefused for a controller reference with missing or malformed parts. The object's own name is
    irrelevant.
    """
    if not reference.api_version:
        raise KeyRefused("apiVersion of controller reference must not be empty")
    if not reference.kind:
        raise KeyRefused("kind of controller reference must not be empty")
    if not reference.name:
        raise KeyRefused("name of controller reference must not be empty")
    try:
        group = _group(reference.api_version)
    except ValueError as error:
        raise KeyRefused(f"invalid apiVersion of controller reference: {error}") from None
    return f"{group}/{reference.kind}/{namespace}/{reference.name}"


def kind_of_key(key: str) -> GroupKind:
    """The kind in a key."""
    group, kind, *_ = key.split("/")
    return GroupKind(group, kind)


def object_of_key(key: str) -> Key:
    """The object with that key. Nobody checks the names in owner references: there may be a slash in one."""
    return Key(*key.split("/", 3)[2:])


def namespace_of_key(key: str) -> str:
    """The namespace in a key."""
    return key.split("/")[2]


@lru_cache(maxsize=1024)
def _group(api_version: str) -> str:
    """The group, parsed as leniently as by the reference: an empty part or a lone slash is not an error, a
    second slash is.
    """
    if api_version.count("/") > 1:
        raise ValueError(f"unexpected GroupVersion string: {api_version}")
    group, slash, _ = api_version.partition("/")
    return group if slash else ""
