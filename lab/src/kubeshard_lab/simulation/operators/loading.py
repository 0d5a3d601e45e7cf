"""Imports an operator anew for every simulated process, as each real process imports it for itself.

Guaranteed: two simulated processes share no state of the author's modules: none of their variables, and none of the
metrics that they register in prometheus_client's default registry. Not guaranteed: anything about other packages, which
are imported once; and a module that is first imported while a process works is that of the process that started last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from prometheus_client import REGISTRY
from prometheus_client.registry import Collector

from kubeshard.manager.manager import Manager

_OURS = ("kubeshard", "kubeshard_apiserver")
_EXAMPLES = "kubeshard_lab.examples."
_INSTALLED = "site-packages"

_BEFORE: dict[str, frozenset[Collector]] = {}
"""What was in the registry before each module was imported for the first time."""


class FreshImports:
    """`load` returns the manager MODULE:MANAGER, whose modules nobody else may have imported before."""

    def __init__(self, target: str, load: Callable[[str], Manager]) -> None:
        self._target = target
        self._load = load

    def manager(self) -> Manager:
        module, _, _ = self._target.partition(":")
        name = str(Path(module).resolve()) if module.endswith(".py") else module
        if name in sys.modules:
            authors = _Authors(name, sys.modules[name])
            for known, each in tuple(sys.modules.items()):
                if each in authors:
                    del sys.modules[known]
        registered = frozenset(REGISTRY._collector_to_names)
        for collector in registered - _BEFORE.setdefault(name, registered):
            REGISTRY.unregister(collector)
        return self._load(self._target)


class _Authors:
    """The modules of an author: those of the package, and of the folder that it is in."""

    def __init__(self, name: str, module: ModuleType) -> None:
        file = Path(module.__file__ or name).resolve()
        is_package = file.stem == "__init__"
        depth = 0 if name.endswith(".py") else name.count(".") + is_package
        self._folder = file.parents[depth]
        self._package = name.partition(".")[0]
        self._is_example = name.startswith(_EXAMPLES)

    def __contains__(self, module: object) -> bool:
        if not isinstance(module, ModuleType) or module.__name__ == "__main__":
            return False
        if module.__name__.partition(".")[0] in _OURS:
            return self._is_example and f"{module.__name__}.".startswith(_EXAMPLES)
        if _INSTALLED in self._folder.parts:
            return module.__name__.partition(".")[0] == self._package
        file = getattr(module, "__file__", None)
        if not file or not (path := Path(file).resolve()).is_relative_to(self._folder):
            return False
        return _INSTALLED not in path.relative_to(self._folder).parts
