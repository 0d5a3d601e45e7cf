"""Reads the YAML files that a user names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubeshard.core.errors import ConfigurationError

STANDARD_INPUT = "-"
"""Instead of a file's name."""


def read_documents(path: Path) -> list[Any]:
    """The documents of a file, or of standard input, without empty ones. They are in UTF-8, whatever the locale says.
    Raises ConfigurationError.
    """
    import yaml

    try:
        data = _standard_input() if str(path) == STANDARD_INPUT else path.read_bytes()
        return [each for each in yaml.safe_load_all(data) if each is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" on line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", error)
        raise ConfigurationError(f"{source_name(path)}: not YAML{line}: {problem}") from error
    except OSError as error:
        raise ConfigurationError(f"{source_name(path)}: {error.strerror or error}") from error


def _standard_input() -> bytes:
    if sys.stdin is None:  # as the shell's `<&-` leaves it
        raise ConfigurationError(f"{STANDARD_INPUT}: there is no standard input")
    return sys.stdin.buffer.read()


def source_name(path: Path) -> str:
    """The name of what `read_documents` reads, for messages."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def objects_in(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file, or in all YAML files of a folder, in the order of the files' names. Raises
    ConfigurationError.
    """
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
    documents = [(file, document) for file in files for document in read_documents(file)]
    if not documents:
        raise ConfigurationError(
            f"{path}: no object in it" if files else f"{path}: no YAML files in this folder"
        )
    for file, document in documents:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if not (isinstance(metadata, dict) and document.get("kind") and metadata.get("name")):
            raise ConfigurationError(f"{file}: a document has no kind or no metadata.name")
        yield document
