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
    """The documents of a file, or of standard input, without empty ones. Raises ConfigurationError."""
    import yaml

    try:
        text = sys.stdin.read() if str(path) == STANDARD_INPUT else path.read_text()
        return [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" on line {mark.line + 1}" if mark else ""
        raise ConfigurationError(
            f"{source_name(path)}: not YAML{line}: {getattr(error, 'problem', error)}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        problem = (isinstance(error, OSError) and error.strerror) or error
        raise ConfigurationError(f"{source_name(path)}: {problem}") from error


def source_name(path: Path) -> str:
    """The name of what `read_documents` reads, for messages."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def objects_in(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file, or in all YAML files of a folder, in the order of the files' names. Raises
    ConfigurationError.
    """
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
    if not files:
        raise ConfigurationError(f"{path}: no YAML files in this folder")
    for file in files:
        for document in read_documents(file):
            metadata = document.get("metadata") if isinstance(document, dict) else None
            if not (isinstance(metadata, dict) and document.get("kind") and metadata.get("name")):
                raise ConfigurationError(f"{file}: a document has no kind or no metadata.name")
            yield document
