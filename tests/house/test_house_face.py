"""The names that `import kubeshard` provides, and its cost."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module

import pytest
from source_tree import PACKAGE, ROOT, parsed

import kubeshard


def _loaded_after(code: str) -> set[str]:
    """Returns the modules of an interpreter after running the code."""
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.system
def test_importing_the_package_loads_nothing_else() -> None:
    loaded = _loaded_after("import kubeshard")
    assert not {module for module in loaded if module.startswith("kubeshard.")}
    assert not loaded & {"msgspec", "pycurl", "asyncio", "prometheus_client", "yaml"}


@pytest.mark.system
def test_a_name_loads_what_it_needs_and_no_more() -> None:
    loaded = _loaded_after("from kubeshard import KubeObject, ObjectMeta, Struct, errors, field")
    assert "kubeshard.core.objects" in loaded
    assert not loaded & {"kubeshard.client", "kubeshard.manager", "pycurl", "asyncio"}


@pytest.mark.system
def test_a_shard_of_a_service_loads_no_sharder_and_an_operator_that_is_its_own_no_webhook() -> None:
    loaded = _loaded_after("import kubeshard; kubeshard.Manager; kubeshard.Sharding")
    assert not {module for module in loaded if module.startswith("kubeshard.sharder")}
    loaded = _loaded_after("import kubeshard.sharder.in_manager")
    assert not {module for module in loaded if module.startswith("kubeshard.webhook")}
    assert not loaded & {"httptools", "cryptography"}


@pytest.mark.system
def test_a_program_loads_what_is_large_only_where_it_uses_it() -> None:
    """libcurl to connect, YAML for a file, the rest for commands, certificates, pages and a faster event loop."""
    large = {"pycurl", "yaml", "click", "cryptography", "httptools", "uvloop", "multiprocessing", "unittest"}
    program = "from kubeshard import *; import kubeshard_lab.examples.webhosting.operator"
    assert not _loaded_after(program) & large


def test_every_public_name_is_there() -> None:
    assert not [public for public in kubeshard.__all__ if getattr(kubeshard, public) is None]
    assert {*kubeshard.__all__} <= {*dir(kubeshard)}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        kubeshard.Nonsense  # noqa: B018


def test_type_checkers_and_the_interpreter_are_told_the_same() -> None:
    shown = {
        (node.module, alias.asname)
        for node in parsed(PACKAGE / "__init__.pyi").body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {
        (f"kubeshard.{home}".rstrip("."), public)
        for home, names in kubeshard._HOMES.items()
        for public in names
    }
    assert shown == loaded
    assert sorted(public for _, public in loaded) == sorted(kubeshard.__all__)


def test_every_public_error_is_found_in_one_place() -> None:
    """Of the errors that an operator's code encounters."""
    classes = {
        each
        for package in map("kubeshard.{}".format, ("core", "client", "cache", "controller", "manager"))
        for name in import_module(package).__all__
        if isinstance(each := getattr(import_module(package), name), type) and issubclass(each, Exception)
    }
    assert kubeshard.errors.ApplyFailed in classes
    lacking = {
        each.__name__ for each in classes if getattr(kubeshard.errors, each.__name__, None) is not each
    }
    assert not lacking
    assert not [name for name in kubeshard.errors.__all__ if not hasattr(kubeshard.errors, name)]


def test_everything_public_says_what_it_is() -> None:
    assert not [
        public
        for public in kubeshard.__all__
        if callable(thing := getattr(kubeshard, public)) and not (thing.__doc__ or "").strip()
    ]


PAGE = (ROOT / "docs" / "public-interface.md").read_text()


def _rows(heading: str) -> list[str]:
    """Returns the first column of the table below a heading."""
    section = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w.]+)` \|", section, re.M)


def test_the_page_lists_what_is_public() -> None:
    listed = _rows("Stable: `from kubeshard import ...`")
    assert sorted(listed) == sorted(set(listed)) == sorted(kubeshard.__all__)


@pytest.mark.parametrize("package", _rows("Public, for advanced use"))
def test_a_public_package_says_which_names_are(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    assert not [public for public in module.__all__ if not hasattr(module, public)]
