"""Loads the module or object that a user names as MODULE or MODULE:NAME, and distinguishes mistakes from crashes.

| what happens | how it ends |
|---|---|
| there is no such module, or no such name in it | one line that lists the names there are |
| kubeshard refuses a declaration, such as a controller's name | one line with the author's file and line |
| any other exception of the author's code | its stack trace, from the author's first line on |

MODULE is an importable name, also from the working directory, or a file.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from inspect import Parameter, iscoroutinefunction, isfunction, signature
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kubeshard.core.errors import ConfigurationError, KubeshardError

if TYPE_CHECKING:
    from kubeshard.manager.manager import Manager

T = TypeVar("T")

SHOWN = 20
"""The largest number of a module's names that a message lists."""

_HOME = str(Path(__file__).resolve().parents[1])
"""Code in this folder is kubeshard's, not the author's."""


def load_module(reference: str) -> ModuleType:
    """Imports a module. Raises ConfigurationError; SystemExit after printing the stack trace of a crash."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return calling(lambda: _from_file(Path(reference)) if reference.endswith(".py") else _imported(reference))


def load_name(reference: str, default: str = "") -> Any:
    """The object `MODULE:NAME`; `default` is the name if only a module is given. Raises like `load_module`."""
    where, _, name = reference.partition(":")
    name = name or default
    if not where or not name:
        raise ConfigurationError(f"{reference!r}: write MODULE:NAME, as in my_operator.main:manager")
    module: ModuleType = load_module(where)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise ConfigurationError(f"{where} has no {name}{_instead(module)}")
    return found


def load_manager(reference: str) -> Manager:
    """The Manager `MODULE[:NAME]`, or the Manager that a function of that name returns. Raises like `load_module`."""
    from kubeshard.manager.manager import Manager

    found = load_name(reference, "manager")
    if iscoroutinefunction(found) or (isfunction(found) and _required(found)):
        raise ConfigurationError(
            f"{reference}: a function that makes the Manager must not be `async def` and takes no arguments"
        )
    opened = isinstance(found, AbstractAsyncContextManager)  # made by contextlib, it can be called, too
    manager = calling(found) if callable(found) and not opened else found
    if isinstance(manager, AbstractAsyncContextManager):
        raise ConfigurationError(
            f"{reference}: declare what is opened where the manager runs: return Manager([...], opens=[...])"
        )
    if not isinstance(manager, Manager):
        raise ConfigurationError(
            f"{reference} is {type(manager).__name__}, not a Manager: write manager = Manager([...])"
        )
    return manager


def program_name(reference: str) -> str:
    """The program's name: `my-operator` for `my_company.my_operator:manager`, and for `my_operator.main`."""
    module = reference.partition(":")[0].removesuffix(".py")
    parts = [part for part in module.replace("/", ".").split(".") if part]
    if len(parts) > 1 and parts[-1] in ("main", "__main__"):
        del parts[-1]  # every operator has one
    return parts[-1].replace("_", "-").strip("-").lower() if parts else ""


def _required(function: Callable[..., Any]) -> bool:
    """Whether the function has parameters without a default."""
    stars = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return any(
        each.default is Parameter.empty and each.kind not in stars
        for each in signature(function).parameters.values()
    )


def calling(authors: Callable[[], T]) -> T:
    """Calls the author's code. Raises like `load_module`."""
    try:
        return authors()
    except (TypeError, ValueError, KubeshardError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame for frame in reversed(frames) if not _is_plumbing(frame.filename)), None)
        if line is None and isinstance(error, ConfigurationError):
            raise
        if line is None or not _is_ours(frames[-1].filename):
            _crash(error)
        raise ConfigurationError(f"{line.filename}:{line.lineno}: {error}") from error
    except Exception as error:
        _crash(error)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise  # something that the module itself imports
        raise ConfigurationError(
            f"there is no module {name}: give a name that is importable from here, or a file.py"
        ) from None


def _from_file(path: Path) -> ModuleType:
    # Registered under its path: its bare name may belong to another module, such as `types`.
    name = str(path.resolve())
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ConfigurationError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are resolved in it
    spec.loader.exec_module(module)
    return module


def _instead(module: ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", module.__name__) == module.__name__
    ]
    inside = [each.name for each in iter_modules(getattr(module, "__path__", ()))]
    found = (("it has", names), ("its modules are", inside))
    return "".join(f"; {what} {', '.join(each)}" for what, each in found if 0 < len(each) <= SHOWN)


def _crash(error: BaseException) -> NoReturn:
    """Prints the stack trace without the frames above the author's code, and exits."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _is_plumbing(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(error.with_traceback(trace))
    sys.exit(1)


def _is_ours(file: str) -> bool:
    return file.startswith(_HOME)


def _is_plumbing(file: str) -> bool:
    """Whether a frame is not the author's; nor is code without a file, such as importlib's."""
    return _is_ours(file) or file.startswith("<") or file == importlib.__file__
