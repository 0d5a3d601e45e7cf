"""Reads the YAML and JSON files that a user names, as kubectl does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import split_api_version

STANDARD_INPUT = "-"
"""Instead of a file's name."""


class Given(NamedTuple):
    """An object of a file, whose name is for messages."""

    source: str
    manifest: dict[str, Any]


def read_documents(path: Path) -> list[Any]:
    """Of a file or standard input, without empty ones, as kubectl reads them. Raises ConfigurationError."""
    from kubeshard.core.yaml_input import Unreadable, documents_in

    try:
        return documents_in(_standard_input() if str(path) == STANDARD_INPUT else path.read_bytes())
    except Unreadable as error:
        raise ConfigurationError(f"{source_name(path)}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{source_name(path)}: {error.strerror or error}") from error


def _standard_input() -> bytes:
    if sys.stdin is None:  # as the shell's `<&-` leaves it
        raise ConfigurationError(f"{STANDARD_INPUT}: there is no standard input")
    return sys.stdin.buffer.read()


def source_name(path: Path) -> str:
    """The name of what `read_documents` reads, for messages."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def objects_in(path: Path) -> Iterator[Given]:
    """The objects in a file, or in all files of a folder that end as kubectl wants it, in the order of the files'
    names; those of a list one by one. Raises ConfigurationError.
    """
    files = sorted(each for each in path.iterdir() if each.suffix in _ENDINGS) if path.is_dir() else [path]
    found = [
        Given(source_name(file), each)
        for file in files
        for document in read_documents(file)
        for each in _objects(source_name(file), document)
    ]
    if not found:
        raise ConfigurationError(
            f"{path}: no object in it" if files else f"{path}: no YAML or JSON files in this folder"
        )
    yield from found


_ENDINGS = (".json", ".yaml", ".yml")


def _objects(source: str, document: Any) -> Iterator[dict[str, Any]]:
    """The object, or the items of a list: whatever has `items` is one."""
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        item_kind = str(document.get("kind") or "").removesuffix("List")
        own = {"apiVersion": document.get("apiVersion"), "kind": item_kind}
        for item in document["items"]:
            # The API server leaves both out in the items of a typed list.
            typed = not isinstance(item, dict) or item.get("kind") or item.get("apiVersion") or not item_kind
            yield from _objects(source, item if typed else {**own, **item})
        return
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not (isinstance(metadata, dict) and document.get("kind") and metadata.get("name")):
        raise ConfigurationError(f"{source}: a document has no kind or no metadata.name")
    _check_texts(source, document, "kind")
    _check_texts(source, metadata, "metadata.name", "metadata.namespace")
    try:
        split_api_version(document.get("apiVersion") or "")
    except (ValueError, AttributeError):
        raise ConfigurationError(
            f"{source}: {document['kind']} {metadata['name']}: apiVersion: {document.get('apiVersion')!r} is not "
            "GROUP/VERSION or v1"
        ) from None
    yield document


def _check_texts(source: str, mapping: dict[str, Any], *fields: str) -> None:
    """What names an object, and where it is, becomes part of a URL."""
    for field in fields:
        given = mapping.get(field.rpartition(".")[2])
        if not isinstance(given, str | None):
            raise ConfigurationError(f"{source}: {field}: {given!r} is not text; write it in quotes")
