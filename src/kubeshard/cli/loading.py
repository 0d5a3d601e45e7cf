"""What a user names as MODULE or MODULE:NAME, as an object."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from kubeshard.core.errors import ConfigurationError


def load_module(reference: str) -> ModuleType:
    """A module by its dotted name, also one of the working directory, or by its file. Raises ConfigurationError."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        if reference.endswith(".py"):
            return _from_file(Path(reference))
        return importlib.import_module(reference)
    except ModuleNotFoundError as error:
        if error.name and (reference == error.name or reference.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {reference}: give a name that can be imported from here, or a file.py"
            ) from error
        raise ConfigurationError(f"{reference} cannot be imported: {error}") from error
    except Exception as error:  # the user's own code
        raise ConfigurationError(
            f"{reference} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def load_name(reference: str) -> Any:
    """What stands for `MODULE:NAME`. Raises ConfigurationError."""
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ConfigurationError(f"{reference!r}: say MODULE:NAME, as in myoperator.main:manager")
    found: Any = load_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{module} has no {name}")
        found = getattr(found, part)
    return found


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # annotations are resolved in it
    spec.loader.exec_module(module)
    return module
